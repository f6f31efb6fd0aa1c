"""Why tables of a run may fail: only for a reason that the history has given."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from support.memory_reader import UNDER_WAY

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.repair.repair import Replay
from airflow_provider_db2cdc.cdc.table import TableId

if TYPE_CHECKING:
    from histories.world import World

FOREIGN, GAP, TRIMMED = "somebody else has changed", "Changes were lost", "a replay needs the whole change log"
NARROW = "its columns are others than those of its current state"
INTERRUPTED = "was not active for a while"
GIVEN_UP = "a later plan has given up batch"
UNSETTLED = "some of its rows came or went during each"


def check_failures(world: World, spec: JobSpec, result: JobResult, also: Collection[str]) -> None:
    """Check the reasons of failed tables. They may also fail for those of `also`."""
    for line in result.failed:
        reasons = [*also, *_reasons(world, spec, line.table)]
        assert any(reason in line.error for reason in reasons), (line.table, line.error, reasons)


def _reasons(world: World, spec: JobSpec, table: TableId) -> list[str]:
    """Return the reasons that a history has given. A restart accepts what another writer has done."""
    tasks = {task.table: task for task in spec.tables}
    is_restarted = table in tasks and tasks[table].action == "restart"
    is_altered = table in tasks and tasks[table].schema.names != world.source.schema(table).names
    is_replay = spec.repair is not None and spec.repair.repair == Replay()
    given = {
        UNSETTLED: table in world.source.keyless,
        FOREIGN: world.damages[table].is_foreign and not is_restarted,
        GAP: table in world.gapped | world.oracle.superseded,
        INTERRUPTED: table in world.interrupted,
        UNDER_WAY: is_altered,
        NARROW: is_altered,
        GIVEN_UP: world.is_given_up(table),
        TRIMMED: is_replay and table in world.pipeline.target.horizons,
    }
    return [reason for reason, is_given in given.items() if is_given]
