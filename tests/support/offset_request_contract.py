"""What every store of offsets promises of requests. Each implementation runs these tests on its own `store` fixture."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import (
    NOTHING,
    RemoveOffset,
    Restart,
    SetOffset,
    TableRequests,
)
from airflow_provider_db2cdc.cdc.offset.request_change import (
    capture_interrupted,
    source_restored,
    with_entry,
    with_requests,
)
from airflow_provider_db2cdc.cdc.offset.summary import TableFailure
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.failpoint import Failpoint
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore
from support.offset_steps import A, B, C, commit, during, line, lsn, offset_of, request, revision_of, texts


class RequestContract:
    """The tests of one writer after the other."""

    def test_only_a_commit_that_knows_a_request_consumes_it(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        request(store, A, Restart("r"))
        for revision in ("", "q"):
            commit(store, line(A, 5, revision, restart=True, reinitialized=True), at_ms=2)
            assert offset_of(store).restart
        request(store, A, Restart("r2"))
        commit(store, line(A, 5, "r", restart=True, reinitialized=True), at_ms=2)
        assert offset_of(store).restart, "the newer request is another one"
        commit(store, line(A, 5, "r2", restart=True, reinitialized=True), at_ms=3)
        assert (offset_of(store).restart, offset_of(store).lsn) == (False, lsn(5))

    def test_consumed_requests_are_removed_with_the_next_one(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4), line(B, 4))
        request(store, A, Restart("r"))
        commit(store, line(A, 5, "r", restart=True), at_ms=2)
        request(store, B, Restart("b"))
        assert store.read().requests.tables == [B]
        assert not offset_of(store).restart

    def test_what_is_found_out_stays_until_the_table_has_begun_again(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        store.put_requests(capture_interrupted([A, B], "c"))
        store.put_requests(source_restored([A, B, C], "s"))
        offset = offset_of(store)
        assert (offset.capture_interrupted, offset.source_restored, offset.revision) == (True, True, "c s")
        assert (offset_of(store, B).capture_interrupted, offset_of(store, B).has_position) == (True, False)
        assert store.read().get(C) is None
        commit(store, line(A, 5, "c s"), at_ms=2)
        assert store.read().pending(A) == NOTHING
        assert (offset_of(store).capture_interrupted, offset_of(store).source_restored) == (True, True)
        commit(store, line(A, 6, "c s", reinitialized=True), at_ms=3)
        assert (offset_of(store).capture_interrupted, offset_of(store).source_restored) == (False, False)

    def test_request_keeps_what_is_found_out_before_and_after_it(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        store.put_requests(capture_interrupted([A], "c"))
        store.put_requests(lambda seen: with_requests("restore", [A], seen, "r"))
        offset = offset_of(store)
        assert (offset.restore, offset.capture_interrupted, offset.revision) == (True, True, "c r")
        store.put_requests(capture_interrupted([A], "c2"))
        offset = offset_of(store)
        assert (offset.restore, offset.capture_interrupted, offset.revision) == (True, True, "c2 r")

    def test_tick_that_finds_out_itself_consumes_its_request_once(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        request(store, A, Restart("r"))
        begun = line(A, 5, "r", restart=True, reinitialized=True, capture_interrupted=True)
        commit(store, begun, at_ms=2)
        offset = offset_of(store)
        assert (offset.restart, offset.capture_interrupted) == (False, True)
        assert offset.revision != "r"
        for at_ms in range(3, 6):
            commit(store, line(A, at_ms + 3, revision_of(store), capture_interrupted=True), at_ms=at_ms)
        assert len(revision_of(store).split()) == 2, "it does not grow"

    def test_set_offset_replaces_all_but_what_a_tick_has_committed(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4, commit_ts_ms=99, capture="x", capture_interrupted=True))
        store.put_requests(source_restored([A], "s"))
        asked = TableRequests(SetOffset("r", lsn(2), 50))
        store.put_requests(lambda seen: with_entry(asked, A, seen))
        wanted = Offset(A, lsn(2), 4, 99, planned_at_ms=50, revision="r", committed_lsn=lsn(4))
        assert offset_of(store) == wanted
        store.put_requests(lambda seen: with_entry(TableRequests(SetOffset("r2", lsn(3), 60, 7)), A, seen))
        assert offset_of(store) == replace(wanted, lsn=lsn(3), batch=7, planned_at_ms=60, revision="r2")
        commit(store, line(A, 8, "r2"), at_ms=61)
        assert (offset_of(store).lsn, store.read().pending(A)) == (lsn(8), NOTHING)

    def test_removed_offset_is_forgotten_by_the_next_commit(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4, capture_interrupted=True), line(B, 4))
        for table in (A, B, C):
            request(store, table, RemoveOffset("r"))
        offset = offset_of(store)
        assert (offset.has_position, offset.capture_interrupted, offset.batch) == (False, False, 0)
        assert store.read().requests.tables == [A, B], "C has none"
        commit(store, line(A, 5), line(B, 5), at_ms=2)
        assert store.read().stored.tables == [A, B], "it was not planned with the request"
        commit(store, line(A, 5, "r"), at_ms=2)
        assert (offset_of(store).lsn, store.read().get(B)) == (lsn(5), offset_of(store, B))
        store.put_requests(lambda seen: seen.requests)
        assert (store.read().stored.tables, store.read().get(B)) == ([A], None), "B is not in the pipeline any more"

    @pytest.mark.parametrize("text", ["", "{oops", "[]", "{}", '{"version": 1, "tables": {}, "plan": 5}'])
    def test_damaged_requests_stop_all_until_a_person_has_looked(self, store: KeyedOffsetStore, text: str) -> None:
        commit(store, line(A, 4))
        store.texts.put("requests", text)
        steps: list[Callable[[], object]] = [
            store.read,
            store.summary,
            lambda: request(store, A, Restart("r")),
            lambda: commit(store, line(A, 5), at_ms=2),
        ]
        for step in steps:
            with pytest.raises(OffsetError, match=r"requests.* cannot be read.*delete it"):
                step()
        assert texts(store, "requests") == [text]

    @pytest.mark.parametrize(
        "entry", [5, {"request": 5}, {"request": {"type": "other"}}, {"request": {"type": "restart", "revision": ""}},
                  {"request": {"type": "restart", "revision": "a b"}}, {"capture_interrupted": True}],
    )  # fmt: skip
    def test_damaged_request_stops_only_its_table(self, store: KeyedOffsetStore, entry: object) -> None:
        commit(store, line(A, 4), line(B, 4))
        store.texts.put("requests", json.dumps({"version": 1, "tables": {"S.A": entry}}))
        with pytest.raises(OffsetError, match=r"the request of S\.A kept in .* cannot be read"):
            store.read().get(A)
        store.put_requests(capture_interrupted([A, B], "c"))
        error = commit(store, line(A, 5), line(B, 5, "c"), at_ms=2)
        assert error is not None
        assert error.tables == {'"S"."A"'}
        assert (offset_of(store, B).lsn, offset_of(store, B).capture_interrupted) == (lsn(5), True)
        store.put_requests(lambda seen: with_requests("restart", [A], seen, "r"))
        assert (offset_of(store).restart, offset_of(store).lsn) == (True, lsn(4))

    def test_what_plans_record_is_in_the_summary_until_a_commit_takes_it(self, store: KeyedOffsetStore) -> None:
        done, failure = SignalOutcome("1", "airflow", "done"), TableFailure(B, "not registered", is_rejected=True)
        commit(store, line(A, 4), at_ms=5)
        store.put_requests(lambda seen: seen.recorded("p", signals_in_flight_at_ms=8, outcomes=(done,)))
        store.put_requests(lambda seen: seen.recorded("p2", rejected=(failure,)))
        summary = store.summary()
        assert (summary.signals_in_flight_at_ms, summary.outcomes, summary.failures) == (8, (done,), (failure,))
        commit(store, line(A, 5), at_ms=6)
        assert (store.summary().signals_in_flight_at_ms, store.summary().outcomes) == (8, (done,)), "of an older plan"
        assert store.summary().failures == ()
        commit(store, line(A, 6), at_ms=8)
        assert (store.summary().signals_in_flight_at_ms, store.summary().outcomes) == (0, (done,))
        store.put_requests(lambda seen: seen.recorded("p3", rejected=()))
        assert store.read().requests.plan.outcomes == (), "a commit has taken it"


class UnlockedStoreContract:
    """The tests of a store without locks, in which another process writes while one writes."""

    @pytest.mark.parametrize("point", ["put_summary", "put_offsets"])
    def test_request_during_a_commit_is_not_lost(self, store: KeyedOffsetStore, point: Failpoint) -> None:
        commit(store, line(A, 4))
        with during(point, lambda: request(store, A, Restart("r"))):
            commit(store, line(A, 5), line(B, 5), at_ms=2)
        offset = offset_of(store)
        assert (offset.lsn, offset.restart, offset.revision) == (lsn(5), True, "r")
        commit(store, line(A, 5), line(B, 6), at_ms=2)
        assert offset_of(store).restart, "a retry was not planned with it"
        commit(store, line(A, 7, "r", restart=True, reinitialized=True), at_ms=3)
        assert not offset_of(store).restart

    def test_commit_during_a_request_is_not_lost(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        with during("put_requests", lambda: commit(store, line(A, 5), at_ms=2)):
            request(store, A, Restart("r"))
        assert (offset_of(store).lsn, offset_of(store).restart) == (lsn(5), True)

    def test_finding_next_to_a_commit_does_not_repeat_its_request(self, store: KeyedOffsetStore) -> None:
        """The finding's writer has read the offsets before the commit."""
        commit(store, line(A, 4))
        request(store, A, Restart("r"))
        consumed = line(A, 5, "r", restart=True, reinitialized=True)
        with during("put_requests", lambda: commit(store, consumed, at_ms=2)):
            store.put_requests(capture_interrupted([A], "c"))
        offset = offset_of(store)
        assert (offset.restart, offset.capture_interrupted, offset.lsn) == (False, True, lsn(5))
        commit(store, line(A, 6, offset.revision, reinitialized=True), at_ms=3)
        assert (offset_of(store).restart, offset_of(store).capture_interrupted) == (False, False)

    def test_record_next_to_a_commit_is_not_lost(self, store: KeyedOffsetStore) -> None:
        def record() -> None:
            store.put_requests(lambda seen: seen.recorded("p", signals_in_flight_at_ms=8))

        with during("put_summary", record):
            commit(store, line(A, 4), at_ms=5)
        assert store.summary().signals_in_flight_at_ms == 8
