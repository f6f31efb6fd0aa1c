"""The rules of the shim on plain bytes: frames as IBM's drivers and Derby sent them, and constructed ones."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

import pytest

from airflow_provider_db2cdc.sandbox.protocol.drda import ClientStream, CodePoint, ServerStream, flatten_access_reply
from airflow_provider_db2cdc.sandbox.protocol.dss import DdmObject, Frame, FrameStream, encode_frame, parse_objects
from airflow_provider_db2cdc.sandbox.protocol.sql_rewrite import rewrite_sql, split_statements

REQUEST = bytes.fromhex("d0010001")
SECTION = bytes.fromhex(
    "0044211353414e44424f5820202020202020202020204e554c4c4944202020202020202020202020535953534820303020202020202020202020"
    "5359534c564c30310001"
)
RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
IBM_DB_ACCRDB = bytes.fromhex(RECORDED["ibm_db_accrdb"])
DERBY_ACCRDBRM = bytes.fromhex(RECORDED["derby_accrdbrm"])
FLAT_ACCRDBRM = bytes.fromhex(RECORDED["flat_accrdbrm"])


def client_stream(create: bool = False) -> ClientStream:
    return ClientStream(functools.partial(rewrite_sql, database="SANDBOX"), create)


def frame(code_point: int, data: bytes) -> bytes:
    return encode_frame(REQUEST, DdmObject(code_point, data).encoded)


def statement(sql: str, single_byte: bool = False) -> bytes:
    text = sql.encode()
    string = b"\x00" + len(text).to_bytes(4, "big") + text
    return b"\xff" + string if single_byte else string + b"\xff"


def objects_of(wire: bytes) -> list[DdmObject]:
    return [
        item
        for part in FrameStream(frozenset(range(1 << 16))).feed(wire)
        if isinstance(part, Frame)
        for item in parse_objects(part.payload)
    ]


def parameters_of(wire: bytes) -> list[int]:
    [item] = objects_of(wire)
    return [parameter.code_point for parameter in parse_objects(item.data)]


class TestAccess:
    def test_ibm_db_is_named_as_a_derby_client(self) -> None:
        assert client_stream().feed(IBM_DB_ACCRDB) == IBM_DB_ACCRDB.replace(
            b"\x00\x0c\x11\x2eSQL12014", b"\x00\x0c\x11\x2eDNC10010"
        )

    @pytest.mark.parametrize("codec", ["utf-8", "cp500"])
    @pytest.mark.parametrize("product", ["SQL12014", "JCC04360", "JCC0436012"])
    def test_product_keeps_its_length_and_code_page(self, product: str, codec: str) -> None:
        sent = frame(CodePoint.ACCRDB, DdmObject(CodePoint.PRDID, product.encode(codec)).encoded)
        [access] = objects_of(client_stream().feed(sent))
        [name] = parse_objects(access.data)
        assert name.data.decode(codec) == "DNC10010".ljust(len(product))

    def test_derbys_own_client_is_served_as_before(self) -> None:
        sent = frame(CodePoint.ACCRDB, DdmObject(CodePoint.PRDID, b"DNC10160").encoded)
        assert client_stream().feed(sent) == sent

    def test_access_is_noticed(self) -> None:
        stream = client_stream()
        stream.feed(IBM_DB_ACCRDB[:-1])
        assert not stream.accessing
        stream.feed(IBM_DB_ACCRDB[-1:])
        assert stream.accessing

    @pytest.mark.parametrize("codec", ["utf-8", "cp500"])
    @pytest.mark.parametrize("request_code", [CodePoint.ACCSEC, CodePoint.SECCHK, CodePoint.ACCRDB])
    def test_database_is_created_only_on_request(self, request_code: int, codec: str) -> None:
        sent = frame(request_code, DdmObject(CodePoint.RDBNAM, "SANDBOX           ".encode(codec)).encoded)
        [access] = objects_of(client_stream(create=True).feed(sent))
        assert parse_objects(access.data)[0].data.decode(codec) == "SANDBOX;create=true"
        assert client_stream().feed(sent) == sent

    def test_reply_of_derby_is_flattened(self) -> None:
        stream = ServerStream()
        assert stream.feed(DERBY_ACCRDBRM) == FLAT_ACCRDBRM

    def test_reply_that_is_flat_stays(self) -> None:
        assert ServerStream().feed(FLAT_ACCRDBRM) == FLAT_ACCRDBRM

    def test_package_token_and_user_follow_the_code_pages(self) -> None:
        [item] = [item for item in objects_of(DERBY_ACCRDBRM) if item.code_point == CodePoint.ACCRDBRM]
        codes = [parameter.code_point for parameter in parse_objects(flatten_access_reply(item).data)]
        assert codes == [0x1149, CodePoint.PRDID, 0x002F, CodePoint.TYPDEFOVR, 0x2125, 0x11A0]

    def test_bytes_after_the_reply_are_not_touched_for_jcc(self) -> None:
        stream = ServerStream(cli=False)
        anything = b"\x00\x01not drda"
        assert stream.feed(DERBY_ACCRDBRM + anything) == FLAT_ACCRDBRM + anything
        assert stream.feed(anything) == anything
        assert stream.raw

    @pytest.mark.parametrize(("product", "cli"), [("SQL12014", True), ("JCC04360", False), ("DNC10160", False)])
    def test_cli_driver_is_known_by_its_product(self, product: str, cli: bool) -> None:
        stream = client_stream()
        stream.feed(frame(CodePoint.ACCRDB, DdmObject(CodePoint.PRDID, product.encode("cp500")).encoded))
        assert stream.cli == cli


def sqlca(message: str, database: str = "") -> bytes:
    names = [len(text.encode()).to_bytes(2, "big") + text.encode() for text in (database, message, "")]
    return b"\x00\x00\x00\x27\x1002000CSS10160\x00" + bytes(24) + b" " * 11 + b"".join(names) + b"\xff"


class TestMessage:
    """The CLI driver gives a connection up that sends it a message of more than 70 bytes."""

    def answered(self, code_point: int, data: bytes, cli: bool = True) -> bytes:
        stream = ServerStream(cli)
        stream.feed(DERBY_ACCRDBRM)
        [item] = objects_of(stream.feed(frame(code_point, data)))
        return item.data

    @pytest.mark.parametrize("code_point", [CodePoint.SQLCARD, CodePoint.SQLDARD])
    @pytest.mark.parametrize("database", ["", "SANDBOX"])
    @pytest.mark.parametrize(
        ("message", "kept"),
        [
            ("x" * 70, "x" * 70),
            ("x" * 71, "x" * 70),
            ("x" * 2400, "x" * 70),
            ("x" + "é" * 40, "x" + "é" * 34),
            ("", ""),
        ],
        ids=["fits", "one more", "long", "whole characters", "none"],
    )
    def test_is_cut_for_the_cli_driver(self, code_point: int, database: str, message: str, kept: str) -> None:
        assert self.answered(code_point, sqlca(message, database) + b"columns") == sqlca(kept, database) + b"columns"

    def test_is_whole_for_jcc(self) -> None:
        assert self.answered(CodePoint.SQLCARD, sqlca("x" * 2400), cli=False) == sqlca("x" * 2400)

    @pytest.mark.parametrize("data", [b"\xff", b"\xff" + b"\x01" * 200, b"\x00\x00\x00\x00\x0000000CSS10160\xff"])
    def test_that_is_not_there_stays_so(self, data: bytes) -> None:
        assert self.answered(CodePoint.SQLCARD, data) == data

    def test_is_cut_in_whatever_pieces_it_comes(self) -> None:
        sent = DERBY_ACCRDBRM + frame(CodePoint.SQLCARD, sqlca("x" * 100)) + frame(0x241B, b"row" * 30_000)
        whole = ServerStream(cli=True).feed(sent)
        for size in (1, 3, 1000, 32_768):
            stream = ServerStream(cli=True)
            assert b"".join(stream.feed(sent[at : at + size]) for at in range(0, len(sent), size)) == whole


class TestCursor:
    ROWSET = DdmObject(CodePoint.QRYROWSET, bytes.fromhex("0000000a")).encoded
    EXTRA_BLOCKS = DdmObject(CodePoint.MAXBLKEXT, b"\xff\xff").encoded
    HOLD = statement("FOR READ ONLY WITH HOLD")
    SCROLL = statement("INSENSITIVE SCROLL FOR READ ONLY WITH HOLD")

    def prepare(self, stream: ClientStream, attributes: bytes | None) -> None:
        stream.feed(frame(CodePoint.PRPSQLSTT, SECTION))
        if attributes is not None:
            stream.feed(frame(CodePoint.SQLATTR, attributes))
        stream.feed(frame(CodePoint.SQLSTT, statement("VALUES 1")))

    @pytest.mark.parametrize("command", [CodePoint.OPNQRY, CodePoint.CNTQRY])
    @pytest.mark.parametrize("attributes", [None, HOLD], ids=["without attributes", "hold"])
    def test_forward_only_cursor_loses_rowset_and_extra_blocks(self, command: int, attributes: bytes | None) -> None:
        stream = client_stream()
        self.prepare(stream, attributes)
        sent = frame(command, SECTION + self.EXTRA_BLOCKS + self.ROWSET)
        assert parameters_of(stream.feed(sent)) == [CodePoint.PKGNAMCSN]

    @pytest.mark.parametrize("command", [CodePoint.OPNQRY, CodePoint.CNTQRY])
    def test_scrollable_cursor_keeps_them(self, command: int) -> None:
        stream = client_stream()
        self.prepare(stream, self.SCROLL)
        sent = frame(command, SECTION + self.EXTRA_BLOCKS + self.ROWSET)
        assert stream.feed(sent) == sent

    def test_section_prepared_again_is_forward_only_again(self) -> None:
        stream = client_stream()
        self.prepare(stream, self.SCROLL)
        self.prepare(stream, self.HOLD)
        sent = frame(CodePoint.OPNQRY, SECTION + self.ROWSET)
        assert parameters_of(stream.feed(sent)) == [CodePoint.PKGNAMCSN]

    def test_another_section_does_not_inherit_scrolling(self) -> None:
        stream = client_stream()
        self.prepare(stream, self.SCROLL)
        other = SECTION[:-1] + b"\x02"
        assert parameters_of(stream.feed(frame(CodePoint.OPNQRY, other + self.ROWSET))) == [CodePoint.PKGNAMCSN]

    def test_describe_loses_the_query_instance(self) -> None:
        instance = DdmObject(CodePoint.QRYINSID, bytes(8)).encoded
        sent = frame(CodePoint.DSCSQLSTT, SECTION + instance)
        assert parameters_of(client_stream().feed(sent)) == [CodePoint.PKGNAMCSN]


class TestStatementText:
    @pytest.mark.parametrize("single_byte", [False, True])
    @pytest.mark.parametrize("padding", [0, 32_700, 32_767, 70_000, 2_000_000])
    def test_text_of_any_length_arrives_whole(self, padding: int, single_byte: bool) -> None:
        sql = "SELECT 1 FROM SYSCAT.TABLES WHERE " + "x" * padding + " = CURRENT SERVER"
        [item] = objects_of(client_stream().feed(frame(CodePoint.SQLSTT, statement(sql, single_byte))))
        expected = sql.replace("SYSCAT", "SANDBOX_SYSCAT").replace("CURRENT SERVER", "CAST('SANDBOX' AS VARCHAR(128))")
        assert item.data == statement(expected, single_byte)

    @pytest.mark.parametrize("width", [4, 6, 8])
    def test_width_of_an_extended_length_is_kept(self, width: int) -> None:
        item = DdmObject(CodePoint.SQLSTT, statement("VALUES CURRENT SERVER"), width)
        [rewritten] = objects_of(client_stream().feed(encode_frame(REQUEST, item.encoded)))
        assert rewritten.extended == width
        assert rewritten.data == statement("VALUES CAST('SANDBOX' AS VARCHAR(128))")

    def test_attributes_in_the_same_frame_stay(self) -> None:
        attributes = DdmObject(CodePoint.SQLATTR, statement("WITH HOLD"))
        sent = encode_frame(
            REQUEST, attributes.encoded + DdmObject(CodePoint.SQLSTT, statement("VALUES CURRENT_SERVER")).encoded
        )
        first, second = objects_of(client_stream().feed(sent))
        assert first == attributes
        assert b"'SANDBOX'" in second.data

    @pytest.mark.parametrize(
        "data",
        [b"\x00\x00\x00\x00\x05ab", b"\x07CURRENT SERVER", b"\x00\x00\x00\x00\x02\xc3\x28\xff"],
        ids=["short", "form", "utf-8"],
    )
    def test_text_of_unknown_form_passes_as_it_is(self, data: bytes) -> None:
        sent = frame(CodePoint.SQLSTT, data)
        assert client_stream().feed(sent) == sent


class TestFraming:
    CONVERSATION = b"".join(
        [
            IBM_DB_ACCRDB,
            frame(CodePoint.SQLSTT, statement("VALUES CURRENT SERVER")),
            frame(0x2412, b"\x01" * 50),
            frame(0x146C, b"lob" * 40_000),
            frame(CodePoint.SQLSTT, statement("VALUES CURRENT SERVER" + " " * 70_000)),
            frame(0x200E, b""),
        ]
    )

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 4096, 32_767, 32_768])
    def test_pieces_of_any_size_give_the_same_bytes(self, size: int) -> None:
        whole = client_stream().feed(self.CONVERSATION)
        stream = client_stream()
        pieces = [self.CONVERSATION[at : at + size] for at in range(0, len(self.CONVERSATION), size)]
        assert b"".join(map(stream.feed, pieces)) == whole

    def test_cut_at_every_boundary_gives_the_same_bytes(self) -> None:
        sent = IBM_DB_ACCRDB + frame(CodePoint.SQLSTT, statement("VALUES CURRENT SERVER")) + frame(0x200E, b"")
        whole = client_stream().feed(sent)
        for cut in range(len(sent) + 1):
            stream, answer = client_stream(), ServerStream()
            assert stream.feed(sent[:cut]) + stream.feed(sent[cut:]) == whole
            assert answer.feed(DERBY_ACCRDBRM[:cut]) + answer.feed(DERBY_ACCRDBRM[cut:]) == FLAT_ACCRDBRM

    def test_unwanted_frame_passes_before_it_is_complete(self) -> None:
        sent = frame(0x146C, b"lob" * 1_000_000)
        out = client_stream().feed(sent[:100_000])
        assert len(out) > 60_000
        assert sent.startswith(out)

    def test_frames_survive_encoding_and_cutting(self) -> None:
        chance = random.Random(7)
        for size in [0, 1, 32_755, 32_757, 32_758, 32_761, 32_762, 65_526, 65_527, 200_000]:
            payload = DdmObject(CodePoint.SQLSTT, chance.randbytes(size), 4).encoded
            [part] = FrameStream(frozenset({CodePoint.SQLSTT})).feed(encode_frame(REQUEST, payload))
            assert isinstance(part, Frame)
            assert (part.head, part.payload) == (REQUEST, payload)

    def test_long_object_carries_an_extended_length(self) -> None:
        assert DdmObject(0x2414, bytes(32_763)).encoded[:4] == bytes.fromhex("7fff2414")
        assert DdmObject(0x2414, bytes(32_764)).encoded[:8] == bytes.fromhex("8008241400007ffc")

    @pytest.mark.parametrize(
        "garbage", [b"GET / HTTP/1.1\r\n", b"\x00\x01\xd0\x01\x00\x01\x00\x04\x20\x0e", b"\x16\x03\x01\x02\x00"]
    )
    def test_other_protocols_are_refused(self, garbage: bytes) -> None:
        with pytest.raises(ValueError, match=r"DRDA|length"):
            client_stream().feed(garbage)

    @pytest.mark.parametrize("payload", [b"\x00\x03\x24\x14", b"\x00\x09\x24\x14abc", b"\x80\x04\x24\x14abc", b"\x00"])
    def test_broken_objects_are_an_error(self, payload: bytes) -> None:
        with pytest.raises(ValueError, match="object"):
            parse_objects(payload)


class TestSqlText:
    @pytest.mark.parametrize(
        ("db2", "derby"),
        [
            ("SELECT * FROM SYSCAT.TABLES t", "SELECT * FROM SANDBOX_SYSCAT.TABLES t"),
            ("select * from syscat . columns", "select * from SANDBOX_SYSCAT . columns"),
            ('SELECT 1 FROM SYSCAT."TABLES"', 'SELECT 1 FROM SANDBOX_SYSCAT."TABLES"'),
            (
                "SELECT SYSCAT.TABLES.TABNAME FROM SYSCAT.TABLES",
                "SELECT SANDBOX_SYSCAT.TABLES.TABNAME FROM SANDBOX_SYSCAT.TABLES",
            ),
            ("SELECT 1 FROM SYSIBM.SYSTABLES", "SELECT 1 FROM SANDBOX_SYSCAT.SYSTABLES"),
            ("SELECT 1 FROM SYSIBMADM.ENV_SYS_INFO", "SELECT 1 FROM SANDBOX_SYSCAT.ENV_SYS_INFO"),
            ("VALUES CURRENT SERVER", "VALUES CAST('SANDBOX' AS VARCHAR(128))"),
            ("VALUES current\n /* now */ server", "VALUES CAST('SANDBOX' AS VARCHAR(128))"),
            ("VALUES CURRENT TIMEZONE", "VALUES SANDBOX.TIMEZONE()"),
            ("SELECT COUNT_BIG(*), 'COUNT_BIG' FROM T", "SELECT COUNT(*), 'COUNT_BIG' FROM T"),
            ("VALUES CURRENT_SERVER", "VALUES CAST('SANDBOX' AS VARCHAR(128))"),
        ],
    )
    def test_what_derby_lacks_is_replaced(self, db2: str, derby: str) -> None:
        assert rewrite_sql(db2, "SANDBOX") == derby

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT 1 FROM SYSIBM.SYSDUMMY1",
            "CALL SYSIBM.SQLTABLES(?, ?, ?, ?, ?)",
            "CALL SYSIBM.METADATA()",
            "SELECT 'SYSCAT.TABLES', 'it''s CURRENT SERVER' FROM T",
            'SELECT "SYSCAT.TABLES", "CURRENT SERVER", "a""SYSCAT.b" FROM T',
            "SELECT 1 -- SYSCAT.TABLES\n FROM T /* CURRENT SERVER */",
            "SELECT MYSYSCAT.A, SYSCAT_.B, S$SYSCAT.C, ŁSYSCAT.D FROM T",
            "SELECT S.SYSCAT.C FROM S.SYSCAT",
            "SELECT SYSCAT FROM T",
            "SELECT SERVER, CURRENT TIMESTAMP FROM SERVERS",
            "SELECT 1SYSCAT.X FROM T",
            "SELECT 'SYSCAT.open",
            "",
        ],
    )
    def test_everything_else_stays(self, sql: str) -> None:
        assert rewrite_sql(sql, "SANDBOX") == sql

    def test_quote_in_a_database_name_is_doubled(self) -> None:
        assert rewrite_sql("VALUES CURRENT SERVER", "O'X") == "VALUES CAST('O''X' AS VARCHAR(128))"

    def test_script_is_split_outside_of_literals_and_comments(self) -> None:
        script = "INSERT INTO T VALUES ('a;b');\n-- no; split\nDELETE FROM \"x;y\"; /* ; */ ;;VALUES 1"
        assert split_statements(script) == [
            "INSERT INTO T VALUES ('a;b')",
            '-- no; split\nDELETE FROM "x;y"',
            "VALUES 1",
        ]
