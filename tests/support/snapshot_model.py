"""A model of snapshots: writer, capture, pulls, groups of chunks and crashes in random order, on a random history.

    SnapshotModel(random_history(7), seed=7).run()      raises Wrong if a rule does not hold

Captured changes are also pulled while a chunk is read. Reads are torn (`scan`), by keys or by places. They are by keys
if a statement moves rows to each other's keys. For rows that are equal except for the key, neither the log nor a scan
by places shows all. In half of the histories the last column is captured only since the request for the snapshot, and
the target has not reached that moment. `insert_delete` is like `insert_insert`, and a pause is whatever happens between
two groups. `mistake` plants one known mistake. The test suite shows that each one is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from airflow_provider_db2cdc.cdc.event.change_event import Event, events_of
from airflow_provider_db2cdc.cdc.event.fold import placed
from airflow_provider_db2cdc.cdc.event.net_effect import Effect, count_images, net_effects
from airflow_provider_db2cdc.cdc.event.snapshot_window import surviving, vanished
from airflow_provider_db2cdc.cdc.lsn import Lsn
from support.history import History
from support.mistakes import Wrong
from support.operation import Shift, Swap
from support.scan import torn_scan
from support.staged import Entry, Group, Stand, folded, rebuilt


@dataclass
class SnapshotModel:
    """One table's snapshot. Of `writes` commits the first `fence` are captured, and `applied` are in the target."""

    history: History
    seed: int
    mistake: str = ""
    log: list[Entry] = field(default_factory=list)
    state: dict[Hashable, tuple[Hashable, Stand]] = field(default_factory=dict)
    staged: list[Group] = field(default_factory=list)
    published: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.table = self.history.tables[0].name
        self.positions = self.history.positions
        self.states = [self.history.state(self.table, at) for at in self.positions]
        self.events = events_of(self.history.changes[self.table])
        self.writes = self.fence = self.applied = self.rng.randrange(len(self.positions))
        self.batch, self.low_batch, self.low = 0, 0, 0
        self.mode = self.rng.choice(("insert_insert", "read_only"))
        self.by_image = self.rng.random() < 0.3 or self.mistake.startswith("strict")
        self.by_chunk = not self.by_image and self.rng.random() < 0.5
        is_moving = any(isinstance(step.action, Shift | Swap) for step in self.history.steps)
        self.by_place = not is_moving and self.rng.random() < 0.5
        self.chunk_of = self._chunks()
        self.todo = list(range(self.count))
        self.stale = self.rng.random() < 0.5
        if self.stale:
            self._go_stale()
        self.asked = self.writes
        if self.rng.random() < 0.5:
            self._lag_behind_a_column()

    def run(self) -> None:
        """Snapshot the table while everything else continues, and check each publication and the end."""
        for _ in range(2000):
            if not self.todo and not self.staged:
                break
            self.rng.choice(self._steps())()
        else:
            raise Wrong("the snapshot does not end")
        if not self.by_chunk:
            self._sweep()
        self.writes = self.fence = len(self.positions) - 1
        self._pull(self.fence)
        self._check_state("at the end", lambda key: True)
        self._check_log()

    def _steps(self) -> list[Callable[[], None]]:
        steps = [self._write, self._write, self._capture, self._pull_some]
        if self.todo and len(self.staged) < 3:
            steps += [self._stage, self._stage]
        if self.staged:
            steps += [self._publish, self._publish]
            steps += [self._crash] if self.rng.random() < 0.2 else []
        return [*steps, self._begin_anew] if self.rng.random() < 0.02 else steps

    def _write(self) -> None:
        self.writes = min(self.writes + 1, len(self.positions) - 1)

    def _capture(self) -> None:
        self.fence = self.rng.randint(self.fence, self.writes)

    def _pull_some(self) -> None:
        self._pull(self.rng.randint(self.applied, self.fence))

    def _crash(self) -> None:
        """Forget what is staged, as a restart of the process does."""
        self.staged = []
        self.todo = sorted({*range(self.count)} - self.published)

    def _begin_anew(self) -> None:
        """Stop the snapshot, and request another one."""
        self.published = set()
        self._crash()

    def _stage(self) -> None:
        if self.applied < self.asked and self.mistake != "low mark before the snapshot was asked for":
            # Up to the capture position, which may be before the last commit.
            self._pull(self.fence)
            return
        chunk = self.todo.pop(0)
        low, low_batch, begin, fence = self.applied, self.batch, self.writes, self.fence
        for _ in range(self.rng.choice((0, 1, 3))):
            self._write()
            if self.rng.random() < 0.3:
                self._capture()
                self._pull_some()
        rows = tuple(self._read(chunk, begin, self.writes))
        if self.mistake == "low mark after the read began":
            low, low_batch = self.applied, self.batch
        if self.mistake == "high mark is the fence at the read":
            fence = self.fence
        self.staged.append(Group(chunk, low, low_batch, begin, self.writes, fence, rows))

    def _read(self, chunk: int, begin: int, end: int) -> list[tuple[Hashable, Hashable]]:
        rows = torn_scan(self.history, self.table, self.positions[begin : end + 1], self.by_place, self.rng)
        seen: list[tuple[Hashable, Hashable]] = [(key, row) for key, row in rows if self.chunk_of(key, row) == chunk]
        if self.mistake.startswith("strict"):
            # A chunk of two rows. The next read begins after the last row's value.
            values = sorted(cast("Any", row)[-2] for _, row in seen)[1:2]
            seen.sort(key=lambda row: cast("Any", row[1])[-2])
            seen = [*seen[:2], *(row for row in seen[2:] if cast("Any", row[1])[-2] > values[0])]
        if self.mistake == "uncommitted read" and seen and self.rng.random() < 0.3:
            key, image = seen[0]
            seen[0] = (key, (*cast("Any", image)[:-1], "rolled back"))
        return seen

    def _publish(self) -> None:
        group = self.staged[0]
        high = group.fence if self.mistake.startswith("high") else group.token
        if self.fence < high:
            return
        self.staged.pop(0)
        if self.mode == "read_only" and not self.mistake.startswith("high"):
            high = self.fence
        if self.mistake != "applied after the high mark":
            high = max(high, self.applied)
        if self.mistake.startswith("staged"):
            group = replace(group, rows=tuple(self._read(group.chunk, self.writes, self.writes)))
        ahead = self._compared(group) if self.by_chunk else {}
        self._pull(max(high, self.applied))
        if not self.published:
            self.low_batch, self.low = group.low_batch, group.low
        overriding = self._overriding(group, high)
        for key, image in (rows := surviving(group.rows, overriding)).items():
            self._append(Entry(self.batch, self.positions[high], "r", None, key, image))
        blind = self.mistake == "compared without the changes since"
        unlike = {key: image for key, image in ahead.items() if blind or key not in overriding}
        self._merge_reads(unlike if self.by_chunk else {**rows}, high)
        self.published.add(group.chunk)
        if not self.by_image and (self.by_chunk or not self.stale):
            self._check_state(f"after chunk {group.chunk}", lambda key: self.chunk_of(key, None) in self.published)

    def _compared(self, group: Group) -> dict[Hashable, Hashable | None]:
        """Return a group's rows that differ from the state, and None for rows that only the state has."""
        rows = dict(group.rows)
        gone = self._gone(group.low_batch, rows, lambda key: self.chunk_of(key, None) == group.chunk)
        unlike = {key: image for key, image in rows.items() if key not in self.state or self.state[key][0] != image}
        return {**unlike, **dict.fromkeys(gone)}

    def _merge_reads(self, rows: dict[Hashable, Hashable | None], high: int) -> None:
        for key, image in rows.items():
            if image is None:
                self._delete(key)
            elif key not in self.state or self.state[key][0] != image:
                self.state[key] = (image, Stand(self.positions[high], self.batch))

    def _overriding(self, group: Group, high: int) -> set[Hashable]:
        events = self._window(group, high)
        if self.mistake == "drop for any event":
            return {event.key for event in events}
        effects = self._effects(events)
        if self.mistake == "window on the new key only":
            changed = {event.key for event in events if event.newkey is not None}
            return {key for key, effect in effects.items() if effect.present or key not in changed}
        return {*effects}

    def _window(self, group: Group, high: int) -> list[Event]:
        """Return the log's events after the group's low batch."""
        if self.mistake == "window by positions":
            span = (self.positions[group.low], self.positions[high])
            entries = [entry for entry in self.log if span[0] < entry.commit <= span[1]]
        else:
            entries = [entry for entry in self.log if entry.batch > group.low_batch]
        return [entry.event for entry in entries if entry.event is not None]

    def _pull(self, upto: int) -> None:
        self.batch += 1
        events = self._between(self.applied, upto)
        for event in (one.event for one in placed(events, {*self.state})):
            self._append(Entry(self.batch, event.commit, event.op, event, event.key, event.after))
        for key, effect in self._effects(events).items():
            if effect.image is None:
                self.state.pop(key, None)
            else:
                self.state[key] = (effect.image, Stand(effect.commit, self.batch))
        self.applied = upto

    def _sweep(self) -> None:
        """Delete the rows of the table that the whole snapshot did not find."""
        sign = {"r"} if self.mistake != "any event is a sign of life" else {"r", "c", "u", "d"}
        found = {entry.key for entry in self.log if entry.kind in sign and entry.batch > self.low_batch}
        for key in self._gone(self.low_batch, found, lambda key: True):
            self._delete(key)

    def _gone(self, low_batch: int, found: Container[Hashable], covered: Callable[[Hashable], bool]) -> set[Hashable]:
        if self.mistake == "no sweep":
            return set()
        stands = {key: stand for key, (_, stand) in self.state.items() if covered(key)}
        is_old = self.mistake != "gone whatever wrote it since"
        if self.mistake == "sweep by commit alone":
            return {key for key, stand in stands.items() if stand.commit <= self.positions[self.low]}
        return vanished({key: stand.batch if is_old else 0 for key, stand in stands.items()}, found, low_batch)

    def _delete(self, key: Hashable) -> None:
        self._append(Entry(self.batch, self.positions[self.applied], "gone", None, key, None))
        self.state.pop(key, None)

    def _append(self, entry: Entry) -> None:
        late = [e for e in self.log if e.batch and e.key == entry.key and e.commit > entry.commit]
        if entry.event is None and late:
            raise Wrong(f"{entry.kind} of {entry.key} at {entry.commit} stands behind {late[0]}")
        self.log.append(entry)

    def _between(self, low: int, high: int) -> list[Event]:
        span = {*self.positions[low + 1 : high + 1]}
        return [event for event in self.events if event.commit in span]

    def _effects(self, events: list[Event]) -> dict[Hashable, Effect]:
        if self.mistake == "last operation per key wins":
            return {event.key: Effect(event.commit, event.after) for event in events}
        if self.mistake == "what is left unchanged is unknown":
            beside = [[o for o in events if (o.key, o.commit) == (e.key, e.commit)] for e in events]
            return net_effects(event for event, some in zip(events, beside, strict=True) if count_images(some))
        return net_effects(events)

    def _chunks(self) -> Callable[[Hashable, Hashable], int]:
        """Return a function for the chunk of a row: by its key, or by a column that is not its key."""
        self.count = self.rng.choice((1, 2, 3, 4))
        if self.by_image:
            return lambda key, image: int(cast("Any", image)[-2] + 1) % self.count
        keys = sorted({key for state in self.states for key in state})
        cuts = sorted(self.rng.sample(keys, min(len(keys), self.count - 1)))
        return lambda key, image: sum(cast("Any", key) > cut for cut in cuts)

    def _go_stale(self) -> None:
        """Let the target hold old rows, or rows of before the source was restored. Those may have any position."""
        keys = sorted({key for state in self.states for key in state})
        long_ago = Lsn(bytes(len(self.positions[0].raw)))
        for key in keys:
            if self.rng.random() < 0.6:
                commit = self.rng.choice((long_ago, *self.positions))
                image = (*key, 9, "stale")
                self.state[key] = (image, Stand(commit, 0))
                self.log.append(Entry(0, commit, "c", Event(commit, b"", "c", key, None, image), key, image))

    def _lag_behind_a_column(self) -> None:
        """Let capture and target be before the request for the snapshot, and have no values of a column up to there."""
        self.fence = self.applied = self.rng.randint(0, self.asked)
        self.events = [
            event
            if event.commit > self.positions[self.asked]
            else replace(event, before=_blind(event.before), after=_blind(event.after))
            for event in self.events
        ]

    def _check_state(self, when: str, covered: Callable[[Hashable], bool]) -> None:
        want = {key: image for key, image in self.states[self.applied].items() if covered(key)}
        have = {key: image for key, (image, _) in self.state.items() if covered(key)}
        if want != have:
            raise Wrong(f"{when}: the source has {want}, the target {have}")

    def _check_log(self) -> None:
        if folded(self.log) != self.states[self.applied]:
            raise Wrong("the log does not fold to the source")
        if not self.stale and rebuilt(self.log) != self.states[self.applied]:
            raise Wrong("the log does not add up to the source")


def _blind(image: Any) -> Any:
    return None if image is None else (*image[:-1], "not captured")
