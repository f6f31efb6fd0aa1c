"""Random histories of a source and its pipeline, in memory: exactly the restored sources are noticed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.capture.gap import CommitTrace
from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.source.trace import AppliedCommit, applied_of, newest, trace_of
from airflow_provider_db2cdc.sql.asn import TRACES

TABLES = [TableId("S", "A"), TableId("S", "B")]
OTHER = TableId("S", "OF_NO_PIPELINE")
UTC = SourceClock(offsets_s=(0,))
IDENTITY = CaptureIdentity("ASN.CD", "2026-01-01", "2025-01-01", "0")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def capture(table: TableId) -> CaptureRegistration:
    return CaptureRegistration(table, "ASN", table.name, "A", "", "DI", None, None, None, (), IDENTITY)


@dataclass(frozen=True)
class Committed:
    """A commit of the source. Its `name` is unique, whatever its position."""

    name: int
    at: int
    at_ms: int
    table: TableId
    timed: bool


@dataclass
class Life:
    """A source: what its log had, and what its change tables and IBMSNAP_UOW still hold; and a pipeline's offsets."""

    log: list[Committed] = field(default_factory=list)
    changes: dict[TableId, list[Committed]] = field(default_factory=lambda: {one: [] for one in (*TABLES, OTHER)})
    units: list[Committed] = field(default_factory=list)
    floors: dict[TableId, int] = field(default_factory=dict)
    end: int = 1
    clock: int = 1_000
    names: int = 0
    offsets: dict[TableId, Offset] = field(default_factory=dict)
    applied: dict[TableId, Committed | None] = field(default_factory=dict)
    backups: list[Life] = field(default_factory=list)

    def commit(self, table: TableId, step: int, timed: bool, takes_ms: int) -> None:
        self.end, self.clock, self.names = self.end + step, self.clock + takes_ms, self.names + 1
        one = Committed(self.names, self.end, self.clock, table, timed)
        self.log.append(one)
        self.changes[table].append(one)
        self.units += [one] if timed else []

    def prune(self, upto: int, how: str) -> None:
        """Prune as the agent does, completely or halfway, or by hand without a pruning floor."""
        for table, rows in self.changes.items():
            left = rows[:1] if how == "half" else []
            self.changes[table] = rows if how == "units" else [one for one in rows if one.at > upto or one in left]
            if how in ("agent", "half"):
                self.floors[table] = max(upto, self.floors.get(table, 0))
        if how != "changes":
            self.units = [one for one in self.units if one.at > upto]

    def backup(self) -> None:
        self.backups.append(deepcopy(replace(self, backups=[], offsets={}, applied={})))

    def restore(self, which: int) -> None:
        """Go back to a backup: neither the clock nor the pipeline does."""
        old = deepcopy(self.backups[which])
        self.log, self.changes, self.units, self.floors, self.end = (
            old.log, old.changes, old.units, old.floors, old.end
        )  # fmt: skip
        self.backups, self.clock = self.backups[: which + 1], self.clock + 1

    def tick(self, limit: int) -> None:
        """Pull each table's changes up to the fence, or up to so many of them."""
        for table in TABLES:
            after = self.offsets[table].lsn if table in self.offsets else None
            if after is None:
                self.offsets[table] = self.kept(table, self.end, None)
                continue
            waiting = [one for one in self.changes[table] if lsn(one.at) > after]
            pulled = waiting[:limit]
            upto = pulled[-1].at if len(pulled) < len(waiting) else self.end
            timed = [one for one in pulled if one.timed]
            if lsn(upto) > after:
                self.offsets[table] = self.kept(table, upto, timed[-1] if timed else self.applied[table])

    def kept(self, table: TableId, at: int, last: Committed | None) -> Offset:
        self.applied[table] = last
        found = {} if last is None else {"commit_lsn": lsn(last.at), "commit_ts_ms": last.at_ms}
        return Offset(table, lsn(at), 1, capture=IDENTITY.digest, committed_lsn=lsn(at), **found)  # type: ignore[arg-type]

    def look(self) -> tuple[AppliedCommit | None, bool]:
        """Do as a plan: choose the commit to look up, and judge its remaining traces."""
        chosen = newest((applied_of(capture(one), self.offsets.get(one)) for one in TABLES), lsn(self.end), UTC)
        if chosen is None:
            return None, False
        rows, at = self.changes[chosen.capture.table], chosen.commit
        own = [one for one in self.units if lsn(one.at) == at]
        places = [
            (TRACES[0], sum(lsn(one.at) == at for one in rows)),
            (TRACES[1], len(own)),
            (TRACES[2], sum(one.at_ms == chosen.at_ms for one in own)),
            *((TRACES[3], int(bool(those) and lsn(min(one.at for one in those)) < at)) for those in (rows, self.units)),
        ]
        floor = self.floors.get(chosen.capture.table)
        return chosen, trace_of(places).is_foreign(at, None if floor is None else lsn(floor))

    def stands_on(self, chosen: AppliedCommit) -> Committed:
        one = self.applied[chosen.capture.table]
        assert one is not None
        return one

    def can_tell(self, chosen: AppliedCommit) -> bool:
        """Whether older rows remain and none looks like the commit itself."""
        at, table = self.stands_on(chosen).at, chosen.capture.table
        is_older = any(one.at < at for one in (*self.changes[table], *self.units))
        there = [one for one in self.log if one.at == at]
        is_alike = any(one.at_ms == chosen.at_ms if one.timed else one.table == table for one in there)
        return is_older and not is_alike and self.floors.get(table, 0) < at


commits = st.tuples(
    st.just("commit"), st.sampled_from([*TABLES, OTHER]), st.integers(1, 3), st.booleans(), st.integers(-50, 50)
)
actions = st.lists(
    st.one_of(
        commits,
        commits,
        commits,
        st.tuples(st.just("tick"), st.integers(1, 3)),
        *[st.tuples(st.just("tick"), st.just(100))] * 2,
        st.tuples(st.just("prune"), st.integers(0, 6), st.sampled_from(["agent", "half", "hand", "changes", "units"])),
        st.tuples(st.just("backup")),
        st.tuples(st.just("restore"), st.integers(0, 5)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


def live(life: Life, action: tuple[Any, ...]) -> None:
    match action:
        case ("commit", table, step, timed, takes_ms):
            life.commit(table, step, timed, takes_ms)
        case ("tick", limit):
            life.tick(limit)
        case ("prune", back, how):
            # No more than what was read, as it should be.
            least = min((int.from_bytes(one.lsn.raw, "big") for one in life.offsets.values()), default=0)
            life.prune(min(life.end - back, least), how)
        case ("backup",):
            life.backup()
        case ("restore", which) if which < len(life.backups):
            life.restore(which)
        case ("restart",):
            life.offsets, life.applied = {}, {}
            life.tick(100)


@settings(max_examples=1000, deadline=None)
@given(actions)
def test_only_a_restored_source_is_noticed_in_any_history(
    taken: list[tuple[str | int, ...]],
) -> None:
    life = Life()
    for action in [("restart",), *taken]:
        live(life, action)
        chosen, is_foreign = life.look()
        if chosen is None:
            continue
        is_lost = all(one.name != life.stands_on(chosen).name for one in life.log)
        assert not is_foreign or is_lost, "a false alarm"
        assert is_foreign or not is_lost or not life.can_tell(chosen), "it could have been noticed"
        if is_foreign:
            live(life, ("restart",))


@pytest.mark.parametrize(
    "step", [1, 2, 3], ids=["its position is another commit's", "its position is free", "all positions are later"]
)
def test_a_restored_source_is_noticed_after_it_passes_the_offset(step: int) -> None:
    life = Life()
    for action in (("commit", TABLES[0], 1, True, 5), ("tick", 100), ("commit", TABLES[1], 1, True, 5), ("tick", 100)):
        live(life, action)
    life.backup()
    for action in (("commit", TABLES[0], 2, True, 5), ("tick", 100), ("restore", 0), ("commit", OTHER, step, True, 5)):
        live(life, action)
    life.end += 10
    assert life.look()[1]


def test_pruning_by_hand_is_not_taken_for_a_restored_source() -> None:
    assert not CommitTrace(0, 0, 0, older=False).is_foreign(lsn(5), None)
    assert not CommitTrace(0, 0, 0, older=True).is_foreign(lsn(5), lsn(5))
    assert not CommitTrace(0, 1, 1, older=True).is_foreign(lsn(5), None)
    assert not CommitTrace(2, 0, 0, older=True).is_foreign(lsn(5), None), "IBMSNAP_UOW was pruned apart"
    assert not CommitTrace(0, 0, 0, older=True).is_foreign(lsn(5), Lsn(b"\xff" * 10)), "a floor that does not compare"


def test_a_lost_commit_or_one_of_another_capture_is_not_looked_up() -> None:
    kept = Offset(
        TABLES[0], lsn(9), 1, 5_000, IDENTITY.digest, committed_lsn=lsn(9), commit_lsn=lsn(7)
    )  # fmt: skip
    of = capture(TABLES[0])
    assert applied_of(of, kept) == AppliedCommit(of, lsn(7), 5_000)
    for other in (
        replace(kept, capture="another"),
        replace(kept, source_restored=True),
        replace(kept, restart=True),
        replace(kept, commit_ts_ms=None),
        None,
    ):
        assert applied_of(of, other) is None
    assert newest(
        [None, AppliedCommit(of, Lsn(b"\xff" * 10), 1), AppliedCommit(of, lsn(3), 1), applied_of(of, kept)], lsn(9), UTC
    ) == AppliedCommit(of, lsn(7), 5_000, (datetime(1970, 1, 1, 0, 0, 5),))
