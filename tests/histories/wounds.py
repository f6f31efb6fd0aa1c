"""Steps of a history that damage the target: a state by an error or another writer, and the change log."""

from __future__ import annotations

from collections.abc import Hashable

from support.memory_maintenance import log_horizon
from support.memory_source import IMAGES, Row, number
from support.memory_target import Logged

from airflow_provider_db2cdc.cdc.table import TableId
from histories.damage import part_of, parts_of
from histories.failures import FOREIGN
from histories.world import KEYLESS, KEYS, TABLES, World

UNKNOWN_KEY = 99


def wrong_row(world: World) -> None:
    """Let a state lose, gain or change a row, as an error of ours would."""
    damage_state(world, world.rng.choice(TABLES))


def foreign_row(world: World) -> None:
    """Let another writer change a state. The table's next batch must fail, unless a heal is open."""
    table = world.rng.choice(TABLES)
    if not damage_state(world, table, is_own=False) or world.chance(0.5) or world.mends:
        return
    healed = world.oracle.healed()
    world.write()
    world.source.capture()
    offset = world.pipeline.offsets.get(table)
    if offset is None or offset.restart or offset.restore or table in healed or table not in world.chosen:
        return
    result = world.run(world.pipeline.plan(end=world.source.captured), (f"offset restore {table}",))
    assert any(line.table == table and FOREIGN in line.error for line in result.failed) or table in world.gapped
    world.commit(result)


def damage_state(world: World, table: TableId, is_own: bool = True) -> bool:
    """Damage one row of a complete state, and return whether there was one to damage."""
    if table not in world.oracle.complete():
        return False
    rng, state = world.rng, world.pipeline.target.state[table]
    rows: dict[Hashable, tuple[Row, int] | None] = {}
    if state and rng.random() < 0.4:
        key = rng.choice([*state])
        if table == KEYLESS and is_own:
            # Ours would not leave a gap in the numbers of equal rows.
            key = max(each for each in state if each[0] == key[0])  # type: ignore[index, type-var]
        rows[key] = None
    elif table == KEYLESS:
        image = (rng.randrange(IMAGES),)
        copies = sum(held == image for held, _ in state.values())
        rows[image, copies + 1] = (image, 0)
        if (image, copies + 1) in state:
            return False
    else:
        value = rng.choice((*range(KEYS), UNKNOWN_KEY))
        rows[value,] = ((value, 999), 0)
    damage = world.damages[table]
    for key_, row in rows.items():
        damage.parts.add(part_of(state[key_][0] if row is None else row[0]))
    damage.is_foreign |= not is_own
    world.pipeline.target.put_rows(table, rows, is_own)
    return True


def lose_event(world: World) -> None:
    """Remove an event from a log, one that a backfill can find at the source."""
    table = world.rng.choice(TABLES)
    events = intact_events(world, table)
    if events and not world.pipeline.offsets.all()[table].restart:
        lost = world.rng.choice(events)
        world.pipeline.target.log[table].remove(lost)
        world.damages[table].lost.append(lost)
        world.consumer.note_damage(table, lost[0])
        world.damages[table].parts |= parts_of([lost[2]])


def double_event(world: World) -> None:
    """Put an event into a log twice."""
    table = world.rng.choice(TABLES)
    if events := intact_events(world, table):
        doubled, log = world.rng.choice(events), world.pipeline.target.log[table]
        log.insert(log.index(doubled), doubled)
        world.damages[table].doubled.append(doubled)
        world.consumer.note_damage(table, doubled[0])


def intact_events(world: World, table: TableId) -> list[Logged]:
    """Return the events that a table's batches have pulled since it began, and that the source still has.

    There are none while something reads the log that does not compare it: a pending batch, or an open snapshot.
    """
    is_open = world.oracle.is_busy() or bool(world.gapped)
    if table not in world.oracle.complete() or world.pipeline.offsets.get(table) is None or is_open:
        return []
    pulled, damage = world.oracle.pulled(table), world.damages[table]
    first = max(pulled.beginning.batch, log_horizon(world.pipeline.target, table).batch)
    after = max(world.source.pruned.get(table, 0), number(pulled.beginning.after))
    return [
        logged
        for logged in world.pipeline.target.log[table]
        if logged[1] == "changes" and logged[0] >= first and number(logged[2].commit) > after
        if logged not in damage.doubled
    ]
