from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.frontier import CandidateRange, common_frontier
from airflow_provider_db2cdc.cdc.table import TableId


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def reach(name: str, after: int, upto: int) -> CandidateRange:
    return CandidateRange(TableId("S", name), lsn(after), lsn(upto))


def ends(*reaches: CandidateRange) -> dict[str, int]:
    return {table.name: int.from_bytes(end.raw, "big") for table, end in common_frontier(reaches).items()}


small = st.integers(0, 12)
reaches = st.lists(st.tuples(small, small).map(sorted), min_size=1, max_size=6).map(
    lambda spans: [reach(f"T{at}", after, upto) for at, (after, upto) in enumerate(spans)]
)


def test_no_tables_have_no_frontier() -> None:
    assert ends() == {}


def test_tables_in_step_stop_at_the_least_of_their_ends() -> None:
    assert ends(reach("A", 5, 9), reach("B", 5, 7), reach("C", 3, 20)) == {"A": 7, "B": 7, "C": 7}


def test_a_table_that_lags_delays_no_other_table() -> None:
    assert ends(reach("A", 5, 9), reach("B", 1, 3)) == {"A": 9, "B": 3}


def test_a_table_that_just_reaches_the_foremost_joins_it() -> None:
    assert ends(reach("A", 5, 9), reach("B", 1, 5)) == {"A": 5, "B": 5}


@given(reaches)
def test_no_table_moves_back_or_beyond_its_end(steps: list[CandidateRange]) -> None:
    found = common_frontier(steps)
    assert {step.table for step in steps} == set(found)
    assert all(step.after <= found[step.table] <= step.upto for step in steps)


@given(reaches)
def test_tables_that_reach_the_foremost_stop_at_one_commit(
    steps: list[CandidateRange],
) -> None:
    found = common_frontier(steps)
    foremost = max(step.after for step in steps)
    frontier = {found[step.table] for step in steps if step.upto >= foremost}
    assert len(frontier) == 1
    assert all(found[step.table] < min(frontier) for step in steps if step.upto < foremost)


@given(reaches)
def test_the_frontier_is_the_least_end_of_the_tables_in_step(steps: list[CandidateRange]) -> None:
    found = common_frontier(steps)
    foremost = max(step.after for step in steps)
    in_step = [step for step in steps if step.upto >= foremost]
    assert found[in_step[0].table] == min(step.upto for step in in_step)


@given(reaches)
def test_the_order_of_the_tables_does_not_matter(steps: list[CandidateRange]) -> None:
    assert common_frontier(steps) == common_frontier(reversed(steps))


@dataclass
class Backlog:
    """A table with unread commits. One tick takes at most `limit` of them, and every idle stretch at once."""

    commits: list[int]
    limit: int
    at: int = 0

    def upto(self, position: int) -> int:
        ahead = [commit for commit in self.commits if self.at < commit <= position]
        return position if len(ahead) <= self.limit else ahead[self.limit - 1]


backlogs = st.lists(
    st.builds(Backlog, st.lists(st.integers(1, 30), unique=True).map(sorted), st.integers(1, 4), st.integers(0, 30)),
    min_size=1,
    max_size=5,
)


@given(backlogs, st.lists(st.integers(0, 3), max_size=10))
def test_each_tick_makes_progress_and_all_tables_meet_in_finitely_many(
    tables: list[Backlog], growth: list[int]
) -> None:
    position = 30
    for tick in range(200):
        position += growth[tick] if tick < len(growth) else 0
        if all(table.at == position for table in tables):
            break
        found = ends(*(reach(str(at), table.at, table.upto(position)) for at, table in enumerate(tables)))
        assert any(found[str(at)] > table.at for at, table in enumerate(tables)), "a tick without progress"
        for at, table in enumerate(tables):
            table.at = found[str(at)]
    assert {table.at for table in tables} == {position}
    assert tick <= len(growth) + sum(len(table.commits) for table in tables) + len(tables) + 1
