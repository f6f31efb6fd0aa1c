"""Groups of few chunks: of a fixed number, or in sub-groups so small that a small table has several."""

from __future__ import annotations

import random

import pytest

PACE = "airflow_provider_db2cdc.cdc.snapshot.chunk_sizing"


def in_pieces(patch: pytest.MonkeyPatch, first: int, times: float) -> None:
    """Have groups begin with `first` chunks, and continue with up to `times` the last number of chunks, for an hour."""
    patch.setattr(f"{PACE}.MOST_CHUNKS", first)
    patch.setattr(f"{PACE}.MOST_TIMES", times)
    patch.setattr(f"{PACE}.GROUP_S", 3600.0)
    patch.setattr(f"{PACE}.PIECE_S", 3600.0)


def some_groups(rng: random.Random, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return properties for a pipeline with one of these kinds of groups, at random."""
    number = rng.choice((1, 2, 3, 0))
    if number:
        patch.setattr(f"{PACE}.PIECE_S", rng.choice((0.0, 15.0)))
        return {"snapshot.group.chunks": number}
    in_pieces(patch, rng.choice((1, 2)), rng.choice((1, 2)))
    return {}
