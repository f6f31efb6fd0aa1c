"""DRDA's two layers of framing: DSS frames in a byte stream, DDM objects in a frame.

A frame is a 2-byte length, D0, a format byte, a 2-byte correlator, and its payload. Beyond 32 KB it continues in
segments, announced by the high bit of the previous length. A payload is a sequence of objects with a 2-byte length and
a 2-byte code point each. The high bit of that length announces an extended length field after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = 6
_SEGMENT = 0x7FFF
_MARKED = 0x8000
_DRDA_MAGIC = 0xD0


@dataclass(frozen=True)
class DdmObject:
    """A code point with its data. `extended` is the width of its extended length field, 0 for none."""

    code_point: int
    data: bytes
    extended: int = 0

    @property
    def encoded(self) -> bytes:
        """The object's bytes on the wire."""
        size = len(self.data)
        width = self.extended or (4 if size + 4 > _SEGMENT else 0)
        length = _MARKED | (width + 4) if width else size + 4
        field = size.to_bytes(width, "big") if width else b""
        return length.to_bytes(2, "big") + self.code_point.to_bytes(2, "big") + field + self.data


def parse_objects(payload: bytes) -> list[DdmObject]:
    """Split a payload, or a collection's data, into its objects.

    Raises:
        ValueError: the bytes are not a sequence of whole objects of known length.
    """
    objects, at = [], 0
    while at < len(payload):
        length = int.from_bytes(payload[at : at + 2], "big")
        code_point = int.from_bytes(payload[at + 2 : at + 4], "big")
        extended = length - _MARKED - 4 if length & _MARKED else 0
        if length & _MARKED and extended not in {4, 6, 8}:
            raise ValueError(f"object {code_point:04X} is streamed without a length")
        start = at + 4 + extended
        size = int.from_bytes(payload[at + 4 : start], "big") if extended else length - 4
        if size < 0 or start + size > len(payload):
            raise ValueError(f"object {code_point:04X} is cut off")
        objects.append(DdmObject(code_point, payload[start : start + size], extended))
        at = start + size
    return objects


@dataclass(frozen=True)
class Frame:
    """A whole frame: its bytes as they came, the four header bytes after the length, and the joined payload."""

    raw: bytes
    head: bytes
    payload: bytes

    def with_objects(self, objects: list[DdmObject]) -> bytes:
        """Return the wire bytes of this frame with other objects in it."""
        return encode_frame(self.head, b"".join(item.encoded for item in objects))


def encode_frame(head: bytes, payload: bytes) -> bytes:
    """Return the wire bytes of a frame with these four header bytes after the length, in segments if it is long."""
    if len(payload) + _HEADER <= _SEGMENT:
        return (len(payload) + _HEADER).to_bytes(2, "big") + head + payload
    first = _SEGMENT - _HEADER
    parts = [b"\xff\xff", head, payload[:first]]
    for at in range(first, len(payload), _SEGMENT - 2):
        piece = payload[at : at + _SEGMENT - 2]
        more = _MARKED if at + len(piece) < len(payload) else 0
        parts += [(len(piece) + 2 | more).to_bytes(2, "big"), piece]
    return b"".join(parts)


class FrameStream:
    """Cut a byte stream into frames, and put together only those that begin with a wanted object.

    Everything else passes segment by segment, so that a LOB of any size never has to fit into memory.
    """

    def __init__(self, wanted: frozenset[int]) -> None:
        self._wanted = wanted
        self._buffer = bytearray()
        self._passing = False  # the next segment continues an unwanted frame

    def feed(self, data: bytes) -> Iterator[Frame | bytes]:
        """Yield whole wanted frames, and everything else as bytes; what is incomplete waits for the next call.

        Raises:
            ValueError: the bytes are not DRDA.
        """
        self._buffer += data
        while (part := self._next()) is not None:
            yield part

    def drain(self) -> bytes:
        """Give up what was not yet a whole segment or frame."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _next(self) -> Frame | bytes | None:
        buffer = self._buffer
        if self._passing:
            return self._take_segment()
        if len(buffer) > 2 and buffer[2] != _DRDA_MAGIC:
            raise ValueError("the peer does not speak DRDA")
        if len(buffer) < _HEADER + 4:
            return None
        if int.from_bytes(buffer[_HEADER + 2 : _HEADER + 4], "big") in self._wanted:
            return self._take_frame()
        return self._take_segment()

    def _take_segment(self) -> bytes | None:
        if len(self._buffer) < 2:
            return None
        length, more = self._segment_at(0)
        if len(self._buffer) < length:
            return None
        self._passing = more
        return self._take(length)

    def _take_frame(self) -> Frame | None:
        pieces, at, skip, more = [], 0, _HEADER, True
        while more:
            if len(self._buffer) < at + 2:
                return None
            length, more = self._segment_at(at)
            if len(self._buffer) < at + length:
                return None
            pieces.append(bytes(self._buffer[at + skip : at + length]))
            at, skip = at + length, 2
        raw = self._take(at)
        return Frame(raw, raw[2:_HEADER], b"".join(pieces))

    def _segment_at(self, at: int) -> tuple[int, bool]:
        field = int.from_bytes(self._buffer[at : at + 2], "big")
        length = field & _SEGMENT
        if length < 2:
            raise ValueError("a segment without a length")
        return length, bool(field & _MARKED)

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken
