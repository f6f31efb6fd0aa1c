"""Steps of a history in which the target or Airflow's database is lost, or put back from an older copy."""

from __future__ import annotations

from copy import deepcopy

from support.memory_source import number

from airflow_provider_db2cdc.offsets.keyed import MemoryTexts
from histories.copies import AirflowCopy, TargetCopy
from histories.repairs import finish_waiting
from histories.world import KEYLESS, TABLES, World

AHEAD, MISSING, NOT_HELD = "is ahead of the target", "its offset is missing", "the target holds nothing of this table"


def copy_target(world: World) -> None:
    """Copy the target while no run writes."""
    finish_runs(world)
    world.target_copies.append(
        TargetCopy(
            world.pipeline.target.copy(),
            world.pipeline.journal.copy(),
            deepcopy(world.damages),
            world.repaired_interruptions(),
            {**world.begun},
            {*world.oracle.superseded},
            {**world.oracle.trimmed},
        )
    )


def put_target_back(world: World) -> None:
    """Put an older copy of the target back, and restore the offsets. Pruned changes need a restart."""
    if not world.target_copies or any(damage.lost for damage in world.damages.values()):
        return
    finish_runs(world)
    copy = world.rng.choice(world.target_copies)
    world.pipeline.target, world.pipeline.journal = copy.target.copy(), copy.journal.copy()
    world.damages.update(deepcopy(copy.damages))
    world.begun.update(copy.begun)
    world.oracle.superseded, world.oracle.trimmed = {*copy.superseded}, {**copy.trimmed}
    world.consumer.unsure.add(KEYLESS)
    world.consumer.put_back |= {*TABLES}
    # With an older copy of both, batches get the numbers of lost ones, and a consumer has to begin again.
    world.airflow_copies.clear()
    world.gapped |= {*TABLES}
    world.interrupted |= (world.interruptions - copy.repaired_interruptions).keys()
    recover(world)


def copy_airflow(world: World) -> None:
    """Copy Airflow's database."""
    events = {table: [*events] for table, events in world.airflow.events.items()}
    world.airflow_copies.append(
        AirflowCopy(world.pipeline.offsets.read_texts(), events, world.repaired_interruptions())
    )


def put_airflow_back(world: World) -> None:
    """Put an older copy of Airflow's database back. Its offsets move forward with the next run.

    Tables that began after the copy have no offset in it.
    """
    if not world.airflow_copies or any(damage.lost for damage in world.damages.values()):
        return
    finish_runs(world)
    copy = world.rng.choice(world.airflow_copies)
    world.pipeline.offsets.texts = MemoryTexts(copy.texts)
    world.airflow.events.clear()
    world.airflow.events.update({table: [*events] for table, events in copy.events.items()})
    world.interrupted |= (world.interruptions - copy.repaired_interruptions).keys()
    recover(world)


def lose_airflow(world: World) -> None:
    """Lose the offsets, often with all of Airflow's database, and restore them from the target."""
    if any(damage.lost for damage in world.damages.values()):
        return
    finish_runs(world)
    world.pipeline.offsets.texts = MemoryTexts()
    world.consumer.unsure |= world.consumer.put_back
    if world.chance(0.7):
        world.airflow.events.clear()
    recover(world)


def restore_source(world: World) -> None:
    """Restore the source from an older backup, and restart all tables before the next run.

    Copies of the target and of Airflow's database belong to the lost history.
    """
    finish_runs(world)
    unknown = [table for table in world.oracle.history().last if world.pipeline.offsets.get(table) is None]
    if unknown or any(damage.lost for damage in world.damages.values()):
        return
    commit = world.rng.randint(1, world.source.commits)
    world.source.restore(commit)
    for table, changes in world.happened.items():
        changes[:] = [change for change in changes if number(change.commit) <= commit]
        world.pipeline.restart(table)
    world.oracle.superseded |= {*TABLES}
    world.target_copies.clear()
    world.airflow_copies.clear()
    if world.chance(0.5):
        world.write()
        world.source.capture()
    world.tick(end=world.source.captured)


def finish_runs(world: World) -> None:
    """Have no run under way: what waits is carried out and committed."""
    finish_waiting(world)
    while world.uncommitted:
        world.airflow.commit(world.uncommitted.pop())


def recover(world: World) -> None:
    """Do a tick, and request the restore of the tables that fail, then a restart of those that fail again.

    Only Airflow knows what was interrupted, and which restarts are requested. So an operator restarts those tables.
    """
    world.pipeline.tables = ()
    for action, reasons in (("restore-offset", (AHEAD, MISSING, NOT_HELD)), ("restart-table", (NOT_HELD,))):
        for table in sorted(world.interrupted | world.oracle.superseded):
            world.request("restart-table", table)
        if world.chance(0.5):
            world.write()
            world.source.capture()
        result = world.run(world.pipeline.plan(end=world.source.captured), reasons)
        world.airflow.commit(result)
        for line in result.failed:
            world.request(action, line.table)
