"""Steps of a history: ticks, their deaths and rivals, what operators request, and what the source loses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from support.crash import Killed
from support.memory_pipeline import STOPPED
from support.memory_source import lsn, number

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, OffsetError
from airflow_provider_db2cdc.failpoint import failpoint_action
from histories.failures import GAP, INTERRUPTED
from histories.world import KEYLESS, POINTS, TABLES, WRITES, World, die

OVERTAKEN = ("given up", "is not finished", "another run")
"""Why a table of a run may fail that other runs overtook."""


def write(world: World) -> None:
    """Commit something."""
    world.write()


def capture(world: World) -> None:
    """Capture everything."""
    world.source.capture()


def tick(world: World) -> None:
    """Do a tick while the source continues to change."""
    spec, before = world.plan(), len(world.pipeline.target.planned)
    manifests = len(world.pipeline.target.manifest)
    with world.writing():
        result = world.run(spec)
    check_interval(world, spec, before)
    if len(world.pipeline.target.manifest) > manifests:
        check_manifest(world)
    world.commit(result)


def check_interval(world: World, spec: JobSpec, before: int) -> None:
    """Check that a run has pulled nothing beyond its interval, except for the tables that it snapshotted."""
    if spec.settings.end_at == "fence":
        return
    own = [each for each in world.pipeline.target.planned[before:] if each.run_id == spec.run_id]
    snapshotted = {each.table for each in own if each.chunk_range is not None} | world.oracle.snapshotted()
    snapshotted |= {task.table for task in spec.tables if task.action not in ("pull", "restore")}
    snapshotted |= {table for table in TABLES for signal in spec.signals if str(table) in signal.data}
    for planned in own:
        if planned.table not in snapshotted and not planned.span.empty:
            assert spec.interval_end is not None, "it has no interval"
            assert planned.upto <= spec.interval_end, (planned, spec.interval_end)


def check_manifest(world: World) -> None:
    """Check that a new manifest shows all tables at its commit."""
    world.note_beginnings()
    complete, manifest = world.oracle.complete(), world.pipeline.target.manifest[-1]
    assert complete.keys() >= world.chosen
    assert {complete[table].upto for table in world.chosen} == {manifest}


def run_later(world: World) -> None:
    """Plan a tick that is carried out after other plans."""
    world.waiting.append(world.plan())


def run_waiting(world: World) -> None:
    """Carry out a plan that waits. It may be refused."""
    if not world.waiting:
        return
    run_late(world, world.waiting.pop(world.rng.randrange(len(world.waiting))))


def run_late(world: World, spec: JobSpec) -> None:
    """Carry out a plan after others. An older plan than that of an applied batch does not know what it would undo."""
    before, history = world.pipeline.offsets.all(), world.oracle.history()
    last = [planned for pairs in history.applied.values() for planned, _ in pairs]
    is_older = any(each.planned_at_ms > spec.planned_at_ms for each in (*last, *history.pending) if not each.repair)
    planned = [*world.pipeline.target.planned]
    try:
        result = world.run(spec, OVERTAKEN)
    except ConcurrentRunError as error:
        if not is_older and "this plan is of" in str(error):
            raise AssertionError("no tick was planned later") from error
        return
    if spec.repair is not None:
        assert world.pipeline.offsets.all() == before
        check_unfinished(spec, history.pending, result)
        check_first_try(planned, spec, result)
    elif is_older:
        assert world.pipeline.target.planned == planned, "an older plan has planned a batch"
        check_carried(world, spec, result)
    world.commit(result)


def check_carried(world: World, spec: JobSpec, result: JobResult) -> None:
    """Check that an older run, which was not refused, has nothing to do: later runs have carried its interval."""
    last = world.oracle.history().last
    assert spec.interval is not None
    assert not spec.signals
    assert all(task.action == "pull" and task.upto <= last[task.table].upto for task in spec.tables)
    assert all((line.lsn, line.status) == (None, "unchanged") for line in result.tables)


def check_first_try(planned: Sequence[PlannedBatch], spec: JobSpec, result: JobResult) -> None:
    """Check that the retry of a repair returns what its first try has found."""
    first = {each.table: each.repair.found for each in planned if each.plan_id == spec.plan_id and each.repair}
    again = {line.table: line.repair for line in result.tables if line.repair is not None}
    assert all(again[table] == found for table, found in first.items() if table in again)


def check_unfinished(spec: JobSpec, pending: Sequence[PlannedBatch], result: JobResult) -> None:
    """Check that a repair refuses the tables whose pending batch it must not finish, and finishes the other batches."""
    assert spec.repair is not None
    plan, is_dry_run = (spec.planned_at_ms, spec.plan_id), spec.repair.is_dry_run
    later = {each.table for each in pending if each.repair is None and (each.planned_at_ms, each.plan_id) > plan}
    refused = {line.table for line in result.failed if "is not finished" in line.error}
    unfinished = {each.table for each in pending} if is_dry_run else later
    assert refused == unfinished & {task.table for task in spec.tables}


def commit_later(world: World) -> None:
    """Commit a result that waits. Others may have been committed since."""
    if world.uncommitted:
        world.airflow.commit(world.uncommitted.pop(world.rng.randrange(len(world.uncommitted))), world.chance(0.1))


def kill(world: World) -> None:
    """Let a run die somewhere, and perhaps its retry do the rest, at once or later."""
    spec = world.waiting.pop() if world.waiting and world.chance(0.5) else world.plan()
    with suppress(Killed, ConcurrentRunError), world.writing(), world.acting(die):
        world.airflow.commit(world.run(spec, OVERTAKEN))
    if world.chance(0.4):
        run_late(world, spec)
    elif world.chance(0.3):
        world.waiting.append(spec)


def overtake(world: World) -> None:
    """Let another run do a whole run, or trim the logs, while one hangs. The one that wakes may be refused.

    Before the other run a table may be restarted, or gain a column.
    """
    spec = world.waiting.pop() if world.waiting and world.chance(0.5) else world.plan()
    kind, table = world.rng.choice(("tick", "waiting", "restart", "trim", "gain")), world.rng.choice(TABLES)

    def act() -> None:
        if kind == "restart":
            world.write()
            world.source.capture()
            world.restart(table)
        if kind == "gain":
            gain_column(world)
        if kind == "trim":
            world.trim(spec.planned_at_ms)
        elif kind == "waiting" and world.waiting:
            run_waiting(world)
        else:
            with suppress(ConcurrentRunError):
                world.commit(world.run(world.plan(), OVERTAKEN))

    with suppress(ConcurrentRunError), world.acting(act, (*POINTS, *WRITES * 3)):
        world.commit(world.run(spec, OVERTAKEN))


def choose_tables(world: World) -> None:
    """Change the tables that the pipeline replicates, as a change of `table.include.list` does."""
    world.pipeline.tables = world.rng.choice(((), TABLES[:2], TABLES[1:], world.rng.sample(TABLES, 1)))


def restart(world: World) -> None:
    """Restart a table."""
    world.restart(world.rng.choice(TABLES))


def misplace(world: World) -> None:
    """Lose an offset or put it ahead, and have it restored. Before that its table fails."""
    table, offsets = world.rng.choice(TABLES), world.pipeline.offsets
    if table not in world.chosen or not is_known(world, table):
        return
    if world.chance(0.5):
        offsets.lose(table)
    else:
        offsets.put(replace(offsets.all()[table], lsn=lsn(1_000_000)))
    if world.chance(0.5) and not (world.mends and world.damages[table].lost):
        result = world.run(world.plan(), (f"offset restore {table}",))
        with suppress(OffsetError):
            world.airflow.commit(result)
    world.request("restore-offset", table)


def prune(world: World) -> None:
    """Prune what every table has applied. It must not matter to any of them."""
    offsets = [world.pipeline.offsets.get(table) for table in TABLES]
    known = [offset for offset in offsets if offset is not None and not (offset.restart or offset.restore)]
    if len(known) == len(TABLES) and not any(damage.lost for damage in world.damages.values()):
        world.source.prune(min(min(number(offset.lsn) for offset in known), world.source.captured))


def lose_changes(world: World) -> None:
    """Prune changes that some tables have not applied, before a tick or within it. Those fail until a restart.

    Under a mode that mends gaps they may fail once.
    """
    if any(damage.lost for damage in world.damages.values()):
        return
    world.write()
    world.source.capture()
    history = world.oracle.history()
    must_fail = {
        table for table in world.chosen & history.last.keys() if is_known(world, table) and is_unread(world, table)
    }
    must_fail = set() if world.mends else must_fail
    world.gapped |= {*TABLES}
    if world.chance(0.5):
        world.source.prune()
        end = world.rng.choice((world.source.captured, None))
        result = world.run(world.pipeline.plan(end=end))
    else:
        # Until then the tick can redo pending batches.
        must_fail -= {planned.table for planned in history.pending}
        with failpoint_action("plan_batch", before=lambda _: world.source.prune()):
            result = world.run(world.pipeline.plan(end=world.source.captured))
    failed = {line.table for line in result.failed}
    assert failed >= must_fail, (failed, must_fail, GAP)
    world.airflow.commit(result)
    if not world.mends:
        for table in failed:
            world.restart(table)


def interrupt(world: World) -> None:
    """Stop the registration of a table for a tick. What changes meanwhile is not captured, so the table must fail."""
    table = world.rng.choice(TABLES)
    if any(damage.lost for damage in world.damages.values()):
        return
    must_fail = table in world.oracle.complete().keys() & world.chosen and is_known(world, table) and not world.mends
    world.interrupted.add(table)
    world.interruptions[table] += 1
    world.source.inactive.add(table)
    for _ in range(world.rng.randrange(3)):
        world.load(table)
    world.airflow.commit(world.run(world.plan(), [STOPPED]))
    world.source.inactive.clear()
    world.write_to(table)
    world.source.capture()
    result = world.run(world.pipeline.plan(end=world.source.captured))
    assert not must_fail or any(line.table == table and INTERRUPTED in line.error for line in result.failed)
    world.airflow.commit(result)
    world.restart(table)


def gain_column(world: World) -> None:
    """Add a column to a table and to its change table, and write a value of it."""
    table = world.rng.choice([table for table in TABLES if table != KEYLESS])
    world.source.gain(table)
    world.write_to(table)


def is_known(world: World, table: TableId) -> bool:
    """Return whether the next tick continues with a table, without a snapshot of it from the beginning."""
    offset = world.pipeline.offsets.get(table)
    return offset is not None and not offset.restart


def is_unread(world: World, table: TableId) -> bool:
    """Return whether changes of a table are neither applied nor in the change log."""
    target = world.pipeline.target
    upto = world.oracle.history().last[table].upto
    logged = {event.commit for _, step, event in target.log[table] if step == "changes"}
    return any(change.commit > upto and change.commit not in logged for change in world.source.changes[table])


def trim(world: World) -> None:
    """Trim the logs."""
    world.trim()
