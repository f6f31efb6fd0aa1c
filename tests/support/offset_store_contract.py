"""What every store of offsets promises. Each implementation runs these tests on its own `store` fixture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import (
    NOTHING,
    Restart,
)
from airflow_provider_db2cdc.cdc.offset.request_change import capture_interrupted, source_restored, with_requests
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore
from support.crash import killed
from support.offset_steps import NAMES, A, B, C, commit, fail, line, lsn, offset_of, request, revision_of, texts


class OffsetStoreContract:
    """The tests. `again` opens the same store once more."""

    def test_empty_store_knows_nothing(self, store: KeyedOffsetStore) -> None:
        seen = store.read()
        assert (seen.get(A), dict(seen.all()), seen.pending(A)) == (None, {}, NOTHING)
        assert seen.summary() == store.summary() == PipelineSummary()

    def test_commit_is_read_back_by_the_next_process(
        self, store: KeyedOffsetStore, again: Callable[[], KeyedOffsetStore]
    ) -> None:
        assert commit(store, line(A, 5, commit_ts_ms=99), line(B, 6)) is None
        seen = again().read()
        assert seen.get(A) == Offset(A, lsn(5), 5, 99, planned_at_ms=1, committed_lsn=lsn(5))
        assert [*seen.all()] == [A, B]
        assert seen.summary().tables == again().summary().tables == (A, B)

    def test_tables_with_similar_names_do_not_meet(self, store: KeyedOffsetStore) -> None:
        commit(store, *(line(table, at + 1) for at, table in enumerate(NAMES)))
        for table in NAMES:
            request(store, table, Restart(f"of-{NAMES.index(table)}"))
        seen = store.read()
        assert {table: offset.batch for table, offset in seen.all().items()} == {
            table: at + 1 for at, table in enumerate(NAMES)
        }
        assert [seen.pending(table).request for table in NAMES] == [Restart(f"of-{at}") for at in range(len(NAMES))]

    def test_documents_have_a_line_for_each_table(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 5), line(TableId("S", "a b"), 6))
        request(store, A, Restart("r"))
        offsets, requests = texts(store, "offsets", "requests")
        assert offsets == (
            '{"version": 1, "tables": {\n'
            '"\\"S\\".\\"a b\\"": {"batch": 6, "committed_lsn": "00000000:00000000:0000000000000006", '
            '"lsn": "00000000:00000000:0000000000000006", "planned_at_ms": 1},\n'
            '"S.A": {"batch": 5, "committed_lsn": "00000000:00000000:0000000000000005", '
            '"lsn": "00000000:00000000:0000000000000005", "planned_at_ms": 1}\n}}'
        )
        assert requests == (
            '{"plan": {}, "version": 1, "tables": {\n"S.A": {"request": {"revision": "r", "type": "restart"}}\n}}'
        )

    def test_what_does_not_change_is_not_written(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 5))
        request(store, A, Restart("r"))
        with failpoint_action("put_summary", before=fail), failpoint_action("put_offsets", before=fail):
            commit(store, line(A, 5))
        with failpoint_action("put_requests", before=fail):
            request(store, A, Restart("r"))
        with failpoint_action("put_summary", before=fail):
            commit(store, replace(line(A, 6, revision_of(store), restart=True), batch=5))

    def test_summary_is_stored_before_the_offsets(self, store: KeyedOffsetStore) -> None:
        with killed("put_offsets", "before"):
            commit(store, line(A, 5))
        assert (store.summary().tables, store.read().get(A)) == ((A,), None)

    def test_commit_writes_no_requests(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        request(store, A, Restart("r"))
        before = texts(store, "requests")
        with failpoint_action("put_requests", before=fail):
            commit(store, line(A, 5, "r", restart=True), at_ms=2)
        assert texts(store, "requests") == before

    def test_others_write_neither_offsets_nor_the_summary(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        before = texts(store, "offsets", "summary")
        store.put_requests(capture_interrupted([A, B], "c"))
        store.put_requests(source_restored([A], "s"))
        store.put_requests(lambda seen: seen.recorded("p", signals_in_flight_at_ms=7))
        request(store, A, Restart("r"))
        assert texts(store, "offsets", "summary") == before

    def test_older_plan_does_not_overwrite_a_newer_offset(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 9), at_ms=9)
        before = texts(store, "offsets", "summary")
        assert commit(store, line(A, 5), at_ms=5) is None
        assert texts(store, "offsets", "summary") == before

    def test_damaged_entry_stops_only_its_table(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4), line(B, 4))
        data = json.loads(store.texts.get("offsets") or "")
        data["tables"]["S.A"] = damaged = {"lsn": "zz", "batch": 4}
        store.texts.put("offsets", json.dumps(data))
        with pytest.raises(OffsetError, match=r"the offset of S\.A kept in .* cannot be read.*offset restore S\.A"):
            store.read().get(A)
        error = commit(store, line(A, 5), line(B, 5), at_ms=2)
        assert error is not None
        assert error.tables == {'"S"."A"'}
        assert offset_of(store, B).lsn == lsn(5)
        assert json.loads(store.texts.get("offsets") or "")["tables"]["S.A"] == damaged
        self._restore(store, [A])

    @pytest.mark.parametrize("text", ["", "{oops", "[]", "{}", '{"tables": {}}', '{"version": 2, "tables": {}}'])
    def test_damaged_offsets_are_restored_from_the_target(self, store: KeyedOffsetStore, text: str) -> None:
        commit(store, line(A, 4), line(B, 4))
        store.texts.put("offsets", text)
        for table in (A, C):
            with pytest.raises(OffsetError, match=r"offsets.* cannot be read.*offset restore --all-failed"):
                store.read().get(table)
        error = commit(store, line(A, 5), line(B, 5), at_ms=2)
        assert error is not None
        assert error.tables == {'"S"."A"', '"S"."B"'}
        assert texts(store, "offsets") == [text], "a person may mend it"
        self._restore(store, [A, B])

    def _restore(self, store: KeyedOffsetStore, tables: Sequence[TableId]) -> None:
        assert store.summary().tables == (A, B)
        store.put_requests(lambda seen: with_requests("restore", tables, seen, "r"))
        assert all(offset_of(store, table).restore for table in tables)
        assert commit(store, *(line(table, 7, "r") for table in tables), at_ms=3) is None
        for table in tables:
            assert (offset_of(store, table).lsn, offset_of(store, table).restore) == (lsn(7), False)

    def test_damaged_summary_is_named_and_may_be_deleted(self, store: KeyedOffsetStore) -> None:
        commit(store, line(A, 4))
        store.texts.put("summary", "{oops")
        with pytest.raises(OffsetError, match=r"summary.* cannot be read.*Delete it"):
            store.summary()
        with pytest.raises(OffsetError, match=r"summary.* cannot be read.*Delete it"):
            commit(store, line(A, 5), at_ms=2)
        assert offset_of(store).lsn == lsn(4)
