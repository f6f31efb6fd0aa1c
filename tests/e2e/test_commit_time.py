"""When the source committed an event: from the unit-of-work table, which all captured tables share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC

import pytest
from support.filled import changed, filled
from support.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


@pytest.mark.long
def test_an_event_has_the_time_of_its_own_commit_and_none_where_that_is_not_told(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    tables = [filled(pipeline, 5, name) for name in ("T1", "T2")]
    pipeline.passed()
    for at in range(3):
        for table in tables:
            changed(pipeline, f"UPDATE {table} SET A = '{at}' WHERE ID = {at}")
    units = pipeline.query("SELECT IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER FROM ASNCDC.IBMSNAP_UOW")
    times = {bytes(commit).hex(): time.replace(tzinfo=UTC).timestamp() for commit, time in units}
    untold = pipeline.query(f'SELECT MAX(IBMSNAP_COMMITSEQ) FROM ASNCDC."CDC_{pipeline.schema}_T1"')[0][0]
    pipeline.execute(f"DELETE FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ = X'{bytes(untold).hex()}'")
    pipeline.writer.commit()
    pipeline.passed()
    for table in tables:
        events = pipeline.changes(table).where("op = 'u'").selectExpr("__commit_lsn", "source.ts_us").collect()
        assert len({commit for commit, _ in events}) == 3
        for commit, ts_us in events:
            digits = commit.replace(":", "")
            wanted = None if digits == bytes(untold).hex() else times[digits]
            assert (None if ts_us is None else ts_us / 1_000_000) == wanted
