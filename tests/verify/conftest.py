"""What the verifications in memory share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def frozen_verification_imports() -> None:
    """Take what is imported out of garbage collection.

    A tick collects garbage after each group of chunks. To look through all imports took most of the time of a test.
    """
    gc.freeze()
