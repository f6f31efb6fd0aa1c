"""Every error that a user can meet, grouped by what helps.

    Db2CdcError
    ├── ConfigurationError   the configuration is wrong: change it
    ├── SourceError          Db2 or its capture agent cannot serve: repair the source
    │   ├── RegistrationError  a table is not captured as it must be
    │   ├── CaptureStoppedError  the capture agent does not move
    │   └── GapError         changes were removed before they were read: snapshot again
    ├── TargetError          the Delta target refuses or belongs to another pipeline
    │   └── DifferenceError  a verification found that the target differs from the source
    ├── OffsetError          the stored offset contradicts what Delta holds
    │   └── OffsetCommitError  some tables' offsets were not kept: everything else of the tick was
    ├── SignalError          a signal asks for what cannot be done: it is refused, the work continues
    ├── ConcurrentRunError   another run did, or is doing, this work: let it
    ├── TargetLockedError    another run writes the target, whose store allows one at a time: try again
    └── TickFailedError      some tables of a tick failed; the others are committed

Each carries what happened, to which thing, and a remedy; never row values, never secrets.
"""

from __future__ import annotations

__all__ = [
    "CaptureStoppedError",
    "ConcurrentRunError",
    "ConfigurationError",
    "Db2CdcError",
    "DifferenceError",
    "GapError",
    "OffsetError",
    "RegistrationError",
    "SignalError",
    "SourceError",
    "TargetError",
    "TargetLockedError",
    "TickFailedError",
]


class Db2CdcError(Exception):
    """Base of all errors of this provider; its text ends with what to do."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem.removesuffix('.')}. {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


class ConfigurationError(Db2CdcError):
    """Raised when a setting cannot be meant as it stands."""


class SourceError(Db2CdcError):
    """Raised when Db2 cannot be reached or refuses a statement."""


class RegistrationError(SourceError):
    """Raised when a table is not registered for capture, or not in a state to be read."""


class CaptureStoppedError(SourceError):
    """Raised when the capture agent has not moved for longer than it may."""


class GapError(SourceError):
    """Raised when changes after the offset are no longer in the change table."""


class TargetError(Db2CdcError):
    """Raised when the Delta target cannot be written, or is another pipeline's."""


class DifferenceError(TargetError):
    """Raised when a verification has found differences between a source table and its target."""


class OffsetError(Db2CdcError):
    """Raised when a stored offset is unreadable, ahead of Delta, or lost."""


class SignalError(Db2CdcError):
    """Raised when a signal is not one, or asks for what cannot be done."""


class ConcurrentRunError(Db2CdcError):
    """Raised when another tick of the same pipeline won the race for a batch."""


class TargetLockedError(Db2CdcError):
    """Raised when another run holds the lease of the target, or has taken it over."""


class TickFailedError(Db2CdcError):
    """Raised at the end of a tick in which some tables failed."""
