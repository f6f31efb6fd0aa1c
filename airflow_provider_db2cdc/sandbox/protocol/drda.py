"""Rewrite the DRDA conversation between IBM's drivers and Apache Derby, bytes in and bytes out.

Derby's Network Server speaks DRDA, Db2's own protocol. But it refuses a few things that IBM's drivers send, and answers
one thing in a form that they do not read. `ClientStream` and `ServerStream` repair exactly these. They own no socket
and no clock, so every rule can be tested on plain bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from enum import IntEnum

from airflow_provider_db2cdc.sandbox.protocol.dss import DdmObject, Frame, FrameStream, parse_objects


class CodePoint(IntEnum):
    """The DDM code points that the shim knows, by their names in the DRDA standard."""

    TYPDEFOVR = 0x0035
    ACCSEC = 0x106D
    SECCHK = 0x106E
    PRDID = 0x112E
    CCSIDSBC = 0x119C
    CCSIDDBC = 0x119D
    CCSIDMBC = 0x119E
    ACCRDB = 0x2001
    CNTQRY = 0x2006
    DSCSQLSTT = 0x2008
    OPNQRY = 0x200C
    PRPSQLSTT = 0x200D
    PKGSN = 0x210C
    RDBNAM = 0x2110
    PKGNAMCSN = 0x2113
    MAXBLKEXT = 0x2141
    QRYROWSET = 0x2156
    QRYINSID = 0x215B
    ACCRDBRM = 0x2201
    SQLCARD = 0x2408
    SQLDARD = 0x2411
    SQLSTT = 0x2414
    SQLATTR = 0x2450


_CODE_PAGES = {CodePoint.CCSIDSBC, CodePoint.CCSIDDBC, CodePoint.CCSIDMBC}
_FROM_CLIENT = frozenset(
    {
        CodePoint.ACCSEC,
        CodePoint.SECCHK,
        CodePoint.ACCRDB,
        CodePoint.CNTQRY,
        CodePoint.DSCSQLSTT,
        CodePoint.OPNQRY,
        CodePoint.PRPSQLSTT,
        CodePoint.SQLSTT,
        CodePoint.SQLATTR,
    }
)
_FROM_SERVER = frozenset({CodePoint.ACCRDBRM, CodePoint.SQLCARD, CodePoint.SQLDARD})
_CLI_DRIVER = "SQL"
_CLI_MESSAGE_BYTES = 70  # the SQLCA's SQLERRMC
_SQLCAX = 1 + 4 + 5 + 8  # null indicator, SQLCODE, SQLSTATE, SQLERRPROC; then the extension's null indicator
_SQLCAX_FIXED = 6 * 4 + 11  # SQLERRD1-6, SQLWARN0-A; then database name and message, each after a 2-byte length
# Derby refuses products that are not DNC... For versions after 10.1 it chains a PBSD object that IBM's drivers refuse.
_DERBY_CLIENT = "DNC10010"


class ClientStream:
    """Turn what a client sends into what Derby accepts.

    `create` makes Derby create the database that the client asks for. `accessing` turns true when the client asks for
    a database. The caller then resets it, and gives the answer to a new `ServerStream`. `cli` says whether the client
    is the CLI driver.
    """

    def __init__(self, rewrite_sql: Callable[[str], str], create: bool = False) -> None:
        self.accessing = False
        self.cli = False
        self._rewrite_sql = rewrite_sql
        self._create = create
        self._stream = FrameStream(_FROM_CLIENT)
        self._prepared = b""
        self._scrollable: set[bytes] = set()

    def feed(self, data: bytes) -> bytes:
        """Return the bytes for Derby; an incomplete frame is kept for the next call.

        Raises:
            ValueError: the client does not speak DRDA.
        """
        return b"".join(part if isinstance(part, bytes) else self._frame(part) for part in self._stream.feed(data))

    def _frame(self, frame: Frame) -> bytes:
        try:
            objects = parse_objects(frame.payload)
            changed = [self._object(item) for item in objects]
        except ValueError:
            return frame.raw  # no rule for this form: Derby's own answer says more to the client
        return frame.raw if changed == objects else frame.with_objects(changed)

    def _object(self, item: DdmObject) -> DdmObject:
        match item.code_point:
            case CodePoint.ACCRDB:
                self.accessing = True
                return _each_parameter(item, self._access_parameter)
            case CodePoint.ACCSEC | CodePoint.SECCHK:
                return _each_parameter(item, self._access_parameter)
            case CodePoint.PRPSQLSTT:
                self._prepared = _section(item)
                self._scrollable.discard(self._prepared)
            case CodePoint.SQLATTR if b"SCROLL" in item.data.upper():
                self._scrollable.add(self._prepared)
            case CodePoint.SQLSTT:
                return DdmObject(item.code_point, rewrite_statement(item.data, self._rewrite_sql), item.extended)
            case CodePoint.DSCSQLSTT:
                return _without(item, {CodePoint.QRYINSID})
            case CodePoint.OPNQRY | CodePoint.CNTQRY if _section(item) not in self._scrollable:
                # Derby opens a scrollable cursor for it, and a LOB column then silently yields no rows
                return _without(item, {CodePoint.QRYROWSET, CodePoint.MAXBLKEXT})
        return item

    def _access_parameter(self, item: DdmObject) -> DdmObject:
        if item.code_point == CodePoint.PRDID:
            self.cli = item.data.decode(_codec(item.data)).startswith(_CLI_DRIVER)
            return DdmObject(item.code_point, _named_as_derby_client(item.data))
        if item.code_point == CodePoint.RDBNAM and self._create:
            return DdmObject(item.code_point, _created(item.data))
        return item


class ServerStream:
    """Turn what Derby answers into what IBM's drivers read.

    For JCC only the answer to ACCRDB needs it. After that (`raw`) bytes pass unchanged. The CLI driver below ibm_db
    (`cli`) loses its connection after a message of more than 70 bytes. So each SQLCA for it is checked.
    """

    def __init__(self, cli: bool = False) -> None:
        self.raw = False
        self._cli = cli
        self._stream = FrameStream(_FROM_SERVER)

    def feed(self, data: bytes) -> bytes:
        """Return the bytes for the client; an incomplete frame is kept for the next call."""
        if self.raw:
            return data
        out = []
        for part in self._stream.feed(data):
            out.append(part if isinstance(part, bytes) else self._frame(part))
            if self.raw:
                out.append(self._stream.drain())
                break
        return b"".join(out)

    def _frame(self, frame: Frame) -> bytes:
        try:
            objects = parse_objects(frame.payload)
            changed = [self._object(item) for item in objects]
        except ValueError:
            return frame.raw
        return frame.raw if changed == objects else frame.with_objects(changed)

    def _object(self, item: DdmObject) -> DdmObject:
        match item.code_point:
            case CodePoint.ACCRDBRM:
                self.raw = not self._cli
                return flatten_access_reply(item)
            case CodePoint.SQLCARD | CodePoint.SQLDARD if self._cli:
                return DdmObject(item.code_point, shorten_message(item.data), item.extended)
        return item


def flatten_access_reply(item: DdmObject) -> DdmObject:
    """Move out what Derby nests in ACCRDBRM's TYPDEFOVR next to the three code pages. ibm_db refuses it there."""
    flat: list[DdmObject] = []
    for parameter in parse_objects(item.data):
        if parameter.code_point != CodePoint.TYPDEFOVR:
            flat.append(parameter)
            continue
        nested = parse_objects(parameter.data)
        pages = [page for page in nested if page.code_point in _CODE_PAGES]
        flat.append(_collection(parameter, pages))
        flat += [other for other in nested if other.code_point not in _CODE_PAGES]
    return _collection(item, flat)


def rewrite_statement(data: bytes, rewrite_sql: Callable[[str], str]) -> bytes:
    """Rewrite the text of an SQLSTT: two nullable strings (mixed, single byte), and one of them is there.

    Raises:
        ValueError: the data have another form.
    """
    out, at = [], 0
    while at < len(data):
        if data[at] == 0xFF:
            out.append(b"\xff")
            at += 1
            continue
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        text = data[at + 5 : at + 5 + size]
        if data[at] != 0 or len(text) != size:
            raise ValueError("an SQLSTT of unknown form")
        rewritten = rewrite_sql(text.decode("utf-8")).encode("utf-8")
        out.append(b"\x00" + len(rewritten).to_bytes(4, "big") + rewritten)
        at += 5 + size
    return b"".join(out)


def shorten_message(data: bytes) -> bytes:
    """Cut the message of the SQLCA that these data begin with to what the CLI driver holds, at a whole character."""
    if data[:1] != b"\x00" or data[_SQLCAX : _SQLCAX + 1] != b"\x00":
        return data  # no SQLCA: the statement went well
    database = _SQLCAX + 1 + _SQLCAX_FIXED
    message = database + 2 + int.from_bytes(data[database : database + 2], "big")
    size = int.from_bytes(data[message : message + 2], "big")
    if size <= _CLI_MESSAGE_BYTES:
        return data
    kept = data[message + 2 : message + 2 + _CLI_MESSAGE_BYTES].decode("utf-8", "ignore").encode("utf-8")
    return data[:message] + len(kept).to_bytes(2, "big") + kept + data[message + 2 + size :]


def _collection(item: DdmObject, parameters: list[DdmObject]) -> DdmObject:
    return DdmObject(item.code_point, b"".join(parameter.encoded for parameter in parameters), item.extended)


def _each_parameter(item: DdmObject, change: Callable[[DdmObject], DdmObject]) -> DdmObject:
    return _collection(item, [change(parameter) for parameter in parse_objects(item.data)])


def _without(item: DdmObject, dropped: AbstractSet[int]) -> DdmObject:
    return _collection(item, [kept for kept in parse_objects(item.data) if kept.code_point not in dropped])


def _section(item: DdmObject) -> bytes:
    """The package section that a command is about: what ties a cursor to its statement."""
    parameters = {parameter.code_point: parameter.data for parameter in parse_objects(item.data)}
    return parameters.get(CodePoint.PKGNAMCSN) or parameters.get(CodePoint.PKGSN) or b""


def _named_as_derby_client(product: bytes) -> bytes:
    codec = _codec(product)
    name = product.decode(codec)
    return _DERBY_CLIENT.ljust(len(name)).encode(codec) if name.startswith((_CLI_DRIVER, "JCC")) else product


def _created(database: bytes) -> bytes:
    codec = _codec(database)
    return (database.decode(codec).rstrip() + ";create=true").encode(codec)


def _codec(name: bytes) -> str:
    """UTF-8 once the two sides agreed on UNICODEMGR, EBCDIC before: there letters have the high bit."""
    return "cp500" if name and name[0] >= 0x80 else "utf-8"
