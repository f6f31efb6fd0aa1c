"""Which histories are played: the suite's own few, or as many as one asks for."""

from __future__ import annotations

import os


def seeds(usual: int) -> range:
    """Return the first `usual` seeds, or those that DB2CDC_SOAK names: `40` for the first forty, or `41-80`."""
    first, _, last = os.environ.get("DB2CDC_SOAK", str(usual)).rpartition("-")
    return range(int(first or 1), int(last) + 1)
