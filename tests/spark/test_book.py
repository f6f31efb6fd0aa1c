"""The agenda that two threads share: what the one ends, the other does not open again."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.cdc.agenda import Agenda
from airflow_provider_db2cdc.cdc.part import MAX_FAILURES, Part, chunked, stopped
from airflow_provider_db2cdc.cdc.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.book import Book

ONE, OTHER = TableId("S", "A"), TableId("S", "B")


def book(kind: SnapshotKind = "incremental") -> Book:
    return Book(Agenda((Snapshot("ad-hoc", kind, (Part(ONE), Part(OTHER))),)))


def test_a_part_that_was_stopped_is_not_opened_by_who_read_it_meanwhile() -> None:
    shared = book()
    shared.turn("ad-hoc", ONE, lambda part: stopped(part, "by hand"))
    shared.turn("ad-hoc", ONE, lambda part: chunked(part, [("4",)], "columns"))
    assert shared.part("ad-hoc", ONE) == replace(Part(ONE), status="stopped", reason="by hand")


def test_a_step_sees_the_part_as_it_is_now() -> None:
    shared = book()
    shared.turn("ad-hoc", ONE, lambda part: chunked(part, [("4",)], "columns"))
    shared.turn("ad-hoc", ONE, lambda part: replace(part, done=1))
    assert shared.part("ad-hoc", ONE) == Part(ONE, status="reading", bounds=(("4",),), fingerprint="columns", done=1)


def test_a_table_that_fails_is_out_for_this_tick_and_in_the_end_for_good() -> None:
    agenda = book().agenda
    for tick in range(1, MAX_FAILURES + 1):
        shared = Book(agenda)
        for _ in range(MAX_FAILURES):
            shared.fail("ad-hoc", ONE, "broken")
        agenda = shared.agenda
        running = shared.running("ad-hoc", {ONE, OTHER})
        assert running is not None
        assert [part.table for part in running.parts] == [OTHER]
        assert shared.part("ad-hoc", ONE).failures == tick, "two threads that meet it are one failure"
    assert shared.part("ad-hoc", ONE).status == "failed"


def test_a_table_that_is_being_filled_is_never_given_up() -> None:
    agenda = book("initial").agenda
    for _ in range(MAX_FAILURES + 1):
        shared = Book(agenda)
        shared.fail("ad-hoc", ONE, "broken")
        agenda = shared.agenda
    assert shared.part("ad-hoc", ONE).open
