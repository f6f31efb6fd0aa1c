"""The whole way with the target on S3: ticks, snapshots, verification, maintenance, repairs and readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from support.stored import StoredPipeline, changed, filled

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]


def since_yesterday() -> list[str]:
    """The interval of a backfill that ends a moment ago."""
    now = datetime.now(UTC)
    return ["--from", (now - timedelta(days=1)).isoformat(), "--to", (now - timedelta(seconds=5)).isoformat()]


def test_a_target_on_s3_serves_every_command(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    signals = pipeline.folder / "signals.jsonl"
    pipeline.properties = {"signal.enabled.channels": "file", "signal.file": str(signals)}
    table = filled(pipeline)

    pipeline.passed("tick")
    pipeline.assert_equal(table)
    changed(pipeline, table, 1000)
    pipeline.passed("tick")
    pipeline.assert_equal(table)

    signals.write_text(json.dumps({"id": "s1", "type": "execute-snapshot", "data": {"data-collections": [str(table)]}}))
    changed(pipeline, table, 1001)
    pipeline.passed("tick")
    pipeline.passed("tick")
    pipeline.assert_equal(table)

    verdict = pipeline.passed("verify")
    assert verdict is not None
    pipeline.passed("maintain")
    pipeline.passed("replay", str(table))
    pipeline.passed("backfill", str(table), *since_yesterday())
    pipeline.passed("status")
    pipeline.passed("doctor")
    pipeline.assert_equal(table)
