"""Steps of a history that compare: backfills, replays and verifications, and how planted damage is mended."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from support.crash import Killed
from support.memory_maintenance import log_horizon
from support.memory_source import lsn, number
from support.verification import verify

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Repair, Replay
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.tick.repair.run import LOADING, NEVER_BEGUN
from histories.damage import parts_of
from histories.runs import OVERTAKEN, check_unfinished, is_known, run_late, run_waiting
from histories.world import KEYLESS, TABLES, WRITES, World, die
from histories.wounds import damage_state, double_event, lose_event, wrong_row

KEYED = [table for table in TABLES if table != KEYLESS]


def any_backfill(world: World) -> Backfill:
    """Return a backfill of a random interval. The commits of its ends may be unknown."""
    ends = sorted(world.rng.randrange(world.source.commits + 3) for _ in range(2))
    known = [lsn(end) if world.chance(0.7) else None for end in ends]
    return Backfill(ends[0], ends[1], known[0], known[1])


def repair_later(world: World) -> None:
    """Plan a repair that is carried out after other plans."""
    world.waiting.append(world.pipeline.plan_repair(any_repair(world), *some_tables(world)))


def any_repair(world: World) -> Repair:
    """Return a repair that the damage allows. A replay trusts the log."""
    return Replay() if world.chance(0.2) else any_backfill(world)


def some_tables(world: World) -> list[TableId]:
    """Return some tables."""
    return world.rng.sample(TABLES, world.rng.randrange(1, 4))


def backfill(world: World) -> None:
    """Backfill an interval, often twice."""
    work = any_backfill(world)
    tables = some_tables(world)
    repaired(world, work, tables)
    if world.chance(0.3):
        check_unchanged(world, work, tables)


def replay(world: World) -> None:
    """Compare states with their logs, and correct them or not."""
    tables = some_tables(world)
    if world.chance(0.5):
        repaired(world, Replay(), tables)
    before = traces(world)
    found = run(world, world.pipeline.plan_repair(Replay(), *tables, is_dry_run=True))
    assert traces(world) == before, "a dry run writes nothing"
    for table, findings in found.items():
        check_replayed(world, table, findings)


def repair_after_death(world: World) -> None:
    """Damage all tables, and let a tick or a repair die. An older plan or a repair comes next, and finishes it."""
    older = world.plan() if world.chance(0.5) else world.pipeline.plan_repair(any_repair(world), *TABLES)
    for table in TABLES:
        damage_state(world, table)
    if world.chance(0.5):
        world.write()
        world.source.capture()
        spec = world.plan()
    else:
        spec = world.pipeline.plan_repair(everything(world), *TABLES)
    with suppress(Killed, ConcurrentRunError), world.acting(die, WRITES):
        world.run(spec, OVERTAKEN)
    if world.chance(0.5):
        run_late(world, older)
    world.check()
    repaired(world, everything(world), TABLES)


def everything(world: World) -> Backfill:
    """Return a backfill of all commits."""
    return Backfill(0, world.source.commits, None, lsn(world.source.commits))


def register_again(world: World) -> None:
    """Have the change table of a table created again. The table's next tick must fail, also after a repair."""
    table = world.rng.choice(TABLES)
    if any(damage.lost for damage in world.damages.values()):
        return
    wrong_row(world)
    world.source.created[table] = str(2026 + world.source.commits)
    world.gapped.add(table)
    if world.chance(0.7):
        backfill(world)
    world.write_to(table)
    world.source.capture()
    complete = table in world.oracle.complete().keys() & world.chosen and is_known(world, table) and not world.mends
    result = world.run(world.pipeline.plan(end=world.source.captured), (f"offset restore {table}",))
    assert not complete or table in {line.table for line in result.failed}
    world.airflow.commit(result)
    world.restart(table)


def overtaken_dry_run(world: World) -> None:
    """Let a tick run while a dry run compares. What is not finished must not be taken for an error."""
    spec = world.pipeline.plan_repair(Replay(), *some_tables(world), is_dry_run=True)

    def act() -> None:
        world.write()
        world.source.capture()
        world.airflow.commit(world.run(world.plan()))

    with suppress(ConcurrentRunError), world.acting(act, ("read_history", "read_journal")):
        result = world.run(spec, OVERTAKEN)
        for line in result.tables:
            if line.repair is not None:
                check_replayed(world, line.table, line.repair)


def check_replayed(world: World, table: TableId, findings: Findings) -> None:
    """Check what a replay found. Without damage that is nothing."""
    damage = world.damages[table]
    if not (findings.note or damage.parts):
        assert findings.is_equal, (table, findings)


def run(world: World, spec: JobSpec) -> dict[TableId, Findings]:
    """Do a repair, and commit it. It moves no offset. Return what it found of the tables that it could compare."""
    before, positions = world.pipeline.offsets.all(), applied(world)
    summary, loading = world.pipeline.offsets.summary(), world.oracle.loading()
    pending = world.oracle.history().pending
    result = world.run(spec, OVERTAKEN)
    check_unfinished(spec, pending, result)
    compared = {line.table for line in result.tables if line.repair is not None and not line.repair.note}
    assert not compared & loading
    check_refused(world, spec, result)
    world.airflow.commit(result)
    assert world.pipeline.offsets.all() == before
    assert world.pipeline.offsets.summary() == summary
    assert all(upto >= positions[table] for table, upto in applied(world).items() if table in positions)
    return {line.table: line.repair for line in result.tables if line.repair is not None}


def check_refused(world: World, spec: JobSpec, result: JobResult) -> None:
    """Check that a replay refuses a trimmed log."""
    is_replay = spec.repair is not None and isinstance(spec.repair.repair, Replay)
    replayed = {line.table for line in result.tables if line.repair is not None and not line.repair.note}
    assert not (is_replay and any(log_horizon(world.pipeline.target, table).is_trimmed for table in replayed))


def applied(world: World) -> dict[TableId, Lsn]:
    """Return how far each table is applied."""
    return {table: last.upto for table, last in world.oracle.history().last.items()}


def repaired(world: World, work: Repair, tables: Collection[TableId]) -> dict[TableId, Findings]:
    """Do a repair, check what it found, and note what it has mended."""
    finished = world.oracle.complete()
    found = run(world, world.pipeline.plan_repair(work, *tables))
    for table, findings in found.items():
        if findings.note not in (NEVER_BEGUN, LOADING):
            check_found(world, table, work, findings, table in finished)
    return found


def check_found(world: World, table: TableId, work: Repair, findings: Findings, was_complete: bool) -> None:
    """Check what a repair of a table found, and note what it has mended."""
    damage = world.damages[table]
    if isinstance(work, Replay):
        damage.note_state_mended()
        return
    if not damage.parts and was_complete:
        assert findings.is_equal, (table, findings)
    last = world.oracle.history().last[table]
    added = [each for each in damage.lost if holds(work, each[2].commit)]
    # A repair that died, and that this one has finished, may have added them.
    assert findings.events_added == len(added) or not was_complete, (table, findings)
    assert findings.events_only_in_log == 0, (table, findings)
    doubled = [each for each in damage.doubled if holds(work, each[2].commit)]
    assert findings.events_doubled <= len(doubled), (table, findings)
    damage.lost = [each for each in damage.lost if each not in added]
    if table != KEYLESS or not log_horizon(world.pipeline.target, table).is_trimmed:
        log = world.pipeline.target.log[table]
        touched = parts_of(event for batch, _, event in log if holds(work, event.commit) and batch <= last.batch)
        damage.parts -= touched - damage.of_log


def holds(work: Backfill, commit: Lsn) -> bool:
    """Return whether a commit belongs to an interval. In memory the time of a commit is its number."""
    return work.begin_ms < number(commit) <= work.end_ms


def check_unchanged(world: World, work: Repair, tables: Collection[TableId]) -> None:
    """Check that a second repair changes nothing."""
    before = traces(world)
    again = run(world, world.pipeline.plan_repair(work, *tables))
    assert all(findings.is_equal for findings in again.values()), again
    assert traces(world) == before


def traces(world: World) -> tuple[object, ...]:
    """Return what a run could change of the target."""
    target = world.pipeline.target
    written = {table: (len(log), len(target.commits[table])) for table, log in target.log.items()}
    return written, len(target.planned), len(target.applied), len(world.pipeline.journal.rows)


def verification(world: World) -> None:
    """Verify while something happens. Only what was damaged may be reported."""
    before = {table: len(world.damages[table].parts) for table in KEYED}
    haste = world.rng.choice((0.0, 0.05))

    def meanwhile() -> None:
        if world.chance(haste):
            world.rng.choice(
                (world.write, world.source.capture, lambda: world.airflow.commit(world.run(world.plan())))
            )()

    for table, verdict in verify(world.pipeline, KEYED, meanwhile, quick=world.chance(0.2)).items():
        if not verdict.error and table not in world.oracle.superseded:
            assert verdict.missing + verdict.surplus + verdict.different <= before[table], (table, verdict)


def probe(world: World) -> None:
    """Plant damage in a settled target. A verification finds exactly that. A heal or a backfill mends it."""
    finish_waiting(world)
    world.settle()
    mend(world)
    for _ in range(world.rng.randrange(1, 4)):
        damage_state(world, world.rng.choice(TABLES))
    for plant in (lose_event, double_event):
        if world.chance(0.5):
            plant(world)
    check_verified(world)
    mend(world)
    check_verified(world, is_equal=True)


def finish_waiting(world: World) -> None:
    """Carry out the plans that wait."""
    while world.waiting:
        run_waiting(world)


def check_verified(world: World, is_equal: bool = False) -> None:
    """Verify a settled target. Exactly what is wrong must be found."""
    for table, verdict in verify(world.pipeline, KEYED).items():
        wrong = set() if is_equal else world.oracle.wrong_parts(table, world.source.commits)
        found = (verdict.missing, verdict.surplus, verdict.different)
        assert (sum(found), verdict.status) == (len(wrong), "different" if wrong else "equal"), (table, verdict, wrong)


def mend(world: World) -> None:
    """Mend all damage of a settled target: lost events by a backfill, then what is left by a heal or a replay."""
    work = everything(world)
    if world.chance(0.5) or any(damage.lost for damage in world.damages.values()):
        repaired(world, work, TABLES)
        check_unchanged(world, work, TABLES)
    damaged = {table for table, damage in world.damages.items() if damage.parts or damage.is_foreign}
    trimmed = {table for table in damaged if log_horizon(world.pipeline.target, table).is_trimmed}
    if world.chance(0.3) and not trimmed and not any(damage.of_log for damage in world.damages.values()):
        repaired(world, Replay(), TABLES)
    else:
        world.settle_by(damaged)
    for damage in world.damages.values():
        damage.note_state_mended()
    world.check()
