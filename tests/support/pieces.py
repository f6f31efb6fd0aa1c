"""Groups of few chunks: of a number that is named, or in pieces of so few that a small table has several."""

from __future__ import annotations

import random

import pytest

PACE = "airflow_provider_db2cdc.cdc.snapshot.chunk_sizing"


def in_pieces(patch: pytest.MonkeyPatch, first: int, times: float) -> None:
    """Have groups begin with `first` chunks, and go on with up to `times` as many as were read last, for an hour."""
    patch.setattr(f"{PACE}.MOST_CHUNKS", first)
    patch.setattr(f"{PACE}.MOST_TIMES", times)
    patch.setattr(f"{PACE}.GROUP_S", 3600.0)
    patch.setattr(f"{PACE}.PIECE_S", 3600.0)


def some_groups(rng: random.Random, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the properties of a pipeline whose groups are one of these."""
    number = rng.choice((1, 2, 3, 0))
    if number:
        patch.setattr(f"{PACE}.PIECE_S", rng.choice((0.0, 15.0)))
        return {"snapshot.group.chunks": number}
    in_pieces(patch, rng.choice((1, 2)), rng.choice((1, 2)))
    return {}
