"""Log sequence numbers (LSNs), which order commits, and ranges of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from airflow_provider_db2cdc.errors import OffsetError

WIDTHS = (10, 16)
"""Bytes of an LSN: 16 since compatibility level 1001, 10 before that and on older z/OS."""


@total_ordering
@dataclass(frozen=True)
class Lsn:
    """A position in Db2's log as unsigned big-endian bytes.

    Its text is Debezium's: lower-case hex with ':' after bytes 4 and 8. So texts of one width sort as their bytes do.

    COMMITSEQ and INTENTSEQ are two number spaces: compare only values of the same one. LSNs of two widths are refused,
    never compared. Debezium's comparison of unequal widths overflows or misorders.

    :raises OffsetError: when it does not have 10 or 16 bytes.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) not in WIDTHS:
            raise OffsetError(
                f"an LSN has {len(self.raw)} bytes, expected one of {WIDTHS}",
                "Check the IBMSNAP_COMMITSEQ column's type, or the stored offset.",
            )

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Return the LSN that `text` writes as hex, with or without colons.

        :raises OffsetError: when the text is not an LSN.
        """
        try:
            raw = bytes.fromhex(text.replace(":", ""))
        except (ValueError, AttributeError):
            raise OffsetError(
                f"{text!r} is not an LSN", "Expected hex digits like 00000000:0000150f:0000000000048fca."
            ) from None
        return cls(raw)

    @property
    def hex(self) -> str:
        """The digits only, in upper case, as a Db2 literal X'...' takes them."""
        return self.raw.hex().upper()

    def __str__(self) -> str:
        digits = self.raw.hex()
        return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"

    def __lt__(self, other: Lsn) -> bool:
        self.check_comparable(other)
        return self.raw < other.raw

    def __le__(self, other: Lsn) -> bool:
        self.check_comparable(other)
        return self.raw <= other.raw

    def check_comparable(self, other: Lsn) -> None:
        """Check that the other LSN has the same width.

        :raises OffsetError: when it has not.
        """
        if len(self.raw) != len(other.raw):
            raise OffsetError(
                f"LSNs of {len(self.raw)} and {len(other.raw)} bytes cannot be compared",
                "The capture agent's compatibility level changed: restart each table (`db2cdc offset restart`).",
            )


def synchpoint_of(raw: bytes | None) -> Lsn | None:
    """Return the position in a registration, None if it is empty or has only zero bytes.

    Scripts set zeros by hand. Debezium's own test helper sets CD_OLD_SYNCHPOINT to eight zero bytes, a width that no
    position has.
    """
    return Lsn(bytes(raw)) if raw and any(bytes(raw)) else None


@dataclass(frozen=True)
class LsnRange:
    """The commits after `after`, up to and including `upto`. It holds whole commits only.

    :raises OffsetError: when it ends before it starts, or its ends differ in width.
    """

    after: Lsn
    upto: Lsn

    def __post_init__(self) -> None:
        if self.upto < self.after:
            raise OffsetError(f"the range ({self.after}, {self.upto}] ends before it starts")

    @property
    def empty(self) -> bool:
        """Whether no commit can lie in it."""
        return self.after == self.upto

    def __contains__(self, commit: Lsn) -> bool:
        return self.after < commit <= self.upto

    def __str__(self) -> str:
        return f"({self.after}, {self.upto}]"
