"""Which histories are played: the first one, or as many as one asks for."""

from __future__ import annotations

import os


def seeds() -> range:
    """Return the first seed, or those that DB2CDC_SOAK names: `40` for the first forty, or `41-80`."""
    first, _, last = os.environ.get("DB2CDC_SOAK", "1").rpartition("-")
    return range(int(first or 1), int(last) + 1)
