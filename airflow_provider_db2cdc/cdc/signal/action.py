"""The actions that people request of a pipeline: the type of the signal for each, and its words in the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

OffsetAction = Literal["restart", "restore"]

ACTIONS: Mapping[str, str] = {
    "execute-snapshot": "Take a snapshot",
    "stop-snapshot": "Stop snapshots",
    "pause-snapshot": "Pause snapshots",
    "resume-snapshot": "Resume snapshots",
    "restart-table": "Restart a table",
    "restore-offset": "Restore a lost offset",
}
"""The words of each signal type that a person requests by the form. Remedies in errors name actions by these words."""

OFFSET_ACTIONS: Mapping[str, OffsetAction] = {"restart-table": "restart", "restore-offset": "restore"}
"""The signal types that the plan acts on, because they change offsets. The tick acts on all others."""
