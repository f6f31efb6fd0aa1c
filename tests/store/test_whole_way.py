"""The whole way with the target on S3: ticks, snapshots, verification, maintenance, repairs and readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.stored import StoredPipeline, filled, serve_every_command

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]


def test_a_target_on_s3_serves_every_command(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    serve_every_command(pipeline, filled(pipeline))
