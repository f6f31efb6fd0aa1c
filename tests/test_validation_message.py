from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.properties import BASE, config, refusal

from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

ADDRESS = {"database.hostname": "h", "database.dbname": "D", "database.user": "u", "database.password": "p"}


def said(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    path = folder / "pipeline.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_config(path, environ or {})
    lines = str(caught.value).splitlines()
    return [line.removeprefix("  - ") for line in (lines[1:] if len(lines) > 1 else lines)]


def test_mistakes_of_all_kinds_are_named_at_once(tmp_path: Path) -> None:
    text = """\
name: Db2 Source (prod)
topic.prefix: ${env:STAGE}
topic.prefixx: a
snapshot.mode: never
snapshot.budget.s: 1
snapshot.budget.s: 2
max.rows.per.batch: -1
signal.data.collection: NO_SCHEMA
table.include.list: ['[', 'S.A', '(']
column.include.list: S.A.X
column.exclude.list: S.A.Y
message.key.columns: S.A
snapshot.include.collection.list: '*'
snapshot.select.statement.overrides: S.A
transforms: mask
transforms.mask.type: x.MaskField
transforms.mask.fields: SSN
table.whitelist: S.A
database: {hostname: h, dbname: NO, password: '${vault:x}', port: 0}
"""
    starts = [
        "snapshot.budget.s: leave one; it is given twice",
        "topic.prefix: set the environment variable STAGE",
        "database.password: write ${env:NAME}",
        "transforms.mask: MaskField is not supported",
        "topic.prefixx: did you mean topic.prefix?",
        "table.whitelist is not supported: Debezium renamed it",
        "snapshot.select.statement.overrides.S.A is missing",
        "give a pipeline: a name of letters, digits, '.', '_' and '-', for example Db2_Source_prod",
        "target is missing: give a target",
        "table.include.list: '[' is not",
        "table.include.list: '(' is not",
        "message.key.columns: 'S.A' is not",
        "column.include.list and column.exclude.list are both given",
        "snapshot.mode: write one of",
        "snapshot.include.collection.list: '*' is not",
        "max.rows.per.batch: Input should be greater than 0",
        "signal.data.collection: 'NO_SCHEMA' is not schema.table",
        "database.dbname: put the value in quotes; it is read as a boolean",
        "database.user is missing: give it, or set DB2CDC_USER",
        "database.port: Input should be greater than 0",
    ]
    lines = said(tmp_path, text)
    assert [[start for start in starts if line.startswith(start)] for line in lines].count([]) == 0, lines
    assert len(lines) == len(starts)


@pytest.mark.parametrize("name", ["a", "target", "snapshot.mode"])
def test_one_mistake_is_one_line(name: str) -> None:
    assert "\n" not in refusal(**{name: [1]})


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("topic.prefix", "NO", "a boolean"),
        ("topic.prefix", "on", "a boolean"),
        ("topic.prefix", "0123", "a number"),
        ("topic.prefix", "1.5", "a number"),
        ("topic.prefix", "2026-01-02", "a date"),
        ("topic.prefix", "2026-01-02 03:04:05", "a date"),
        ("pipeline", "123", "a number"),
        ("table.include.list", "[S.A, NO]", "a boolean"),
        ("table.exclude.list", "[S.A, 1]", "a number"),
        ("signal.enabled.channels", "[source, null]", "nothing"),
        ("driver.currentSchema", "2026-01-02", "a date"),
        ("spark.conf", "{spark.a: 2026-01-02}", "a date"),
    ],
)
def test_unquoted_yaml_word_is_reported_with_its_meaning(tmp_path: Path, name: str, value: str, read: str) -> None:
    given = {**BASE, **ADDRESS, name: value}
    lines = said(tmp_path, "".join(f"{key}: {text}\n" for key, text in given.items()))
    place = f"{name}.spark.a" if name == "spark.conf" else name
    assert lines == [f"{place}: put the value in quotes; it is read as {read}"]


class TestNothing:
    """A name without a value is a property that is not given."""

    @pytest.mark.parametrize("name", ["pipeline", "target"])
    def test_empty_required_property_is_missing(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^{name} is missing: give a {name}"):
            PipelineConfig.from_properties({**BASE, name: None})

    def test_empty_login_takes_the_variables(self, tmp_path: Path) -> None:
        text = "pipeline: p\ntarget: /x\ndatabase: {hostname: h, dbname: D, user: , password: }\n"
        assert said(tmp_path, text) == [
            "database.user is missing: give it, or set DB2CDC_USER",
            "database.password is missing: give it, or set DB2CDC_PASSWORD",
        ]
        made = load_config(tmp_path / "pipeline.yaml", {"DB2CDC_USER": "u", "DB2CDC_PASSWORD": "p"})
        assert made.database is not None
        assert made.database.user == "u"

    def test_empty_property_has_its_default(self) -> None:
        assert config(**{"topic.prefix": None, "snapshot.mode": None}) == config()


@pytest.mark.parametrize(
    ("name", "value", "near"),
    [
        ("snapshot.mode", "never", "no_data"),
        ("snapshot.mode", "when_not_needed", "when_needed"),
        ("snapshot.mode", "Initial-Only", "initial_only"),
        ("snapshot.isolation.mode", "read_commited", "read_committed"),
    ],
)
def test_similar_word_is_suggested(name: str, value: str, near: str) -> None:
    assert refusal(**{name: value}).endswith(f"did you mean {near}?")


def test_dissimilar_word_is_not_suggested() -> None:
    assert "did you mean" not in refusal(**{"snapshot.mode": "xyz"})
    assert "did you mean" not in refusal(**{"key.change.detection": "never"})


class TestOldNames:
    @pytest.mark.parametrize("kind", ["table", "column"])
    @pytest.mark.parametrize(("old", "new"), [("whitelist", "include.list"), ("blacklist", "exclude.list")])
    def test_old_list_names_are_refused_with_the_new_name(self, kind: str, old: str, new: str) -> None:
        for name in (f"{kind}.{old}", f"{kind}_{old}"):
            assert refusal(**{name: "S.A"}).endswith(f"write {kind}.{new}")

    @pytest.mark.parametrize("name", ["snapshot.new.tables", "capture.mode"])
    def test_old_names_of_other_connectors_are_ignored(self, name: str) -> None:
        assert "another connector" in config(**{name: "x"}).ignored[name]

    def test_old_name_of_topic_prefix_counts_without_the_new_name(self) -> None:
        assert config(**{"database.server.name": "a"}).server_name == "a"
        assert config(**{"database.server.name": "a", "topic.prefix": None}).server_name == "a"
        both = config(database_server_name="a", topic_prefix="b")
        assert (both.server_name, both.ignored) == (
            "b", {"database_server_name": "topic.prefix is given, and counts instead"},
        )  # fmt: skip

    @pytest.mark.parametrize("name", ["database.cdcschema", "database.cdc.schema", "database_cdcschema"])
    def test_old_names_of_the_control_schema_count(self, name: str) -> None:
        assert config(**{name: "MINE"}).asn_schema == "MINE"
        assert config(**{name: "MINE", "cdc.control.schema": "MINE"}).asn_schema == "MINE"
        assert "contradicts another spelling of cdc.control.schema" in refusal(
            **{"cdc.control.schema": "OTHER", name: "MINE"}
        )

    def test_old_name_of_the_control_schema_counts_without_a_database(self, tmp_path: Path) -> None:
        path = tmp_path / "pipeline.yaml"
        path.write_text("pipeline: p\ntarget: /x\ndatabase.cdcschema: MINE\n")
        assert load_config(path, {}, with_database=False).asn_schema == "MINE"


class TestEmptyList:
    @pytest.mark.parametrize(
        ("name", "meaning"),
        [
            ("table.include.list", "all tables are carried"),
            ("table.exclude.list", "no table is excluded"),
            ("column.include.list", "all columns are carried"),
            ("column.exclude.list", "no column is excluded"),
            ("snapshot.include.collection.list", "all tables begin with a snapshot"),
            ("message.key.columns", "each table keeps its own key"),
        ],
    )
    def test_empty_list_from_a_variable_is_a_warning(self, tmp_path: Path, name: str, meaning: str) -> None:
        path = tmp_path / "pipeline.yaml"
        path.write_text(f"pipeline: p\ntarget: /x\n{name}: ${{env:LIST}}\n")
        assert load_config(path, {"LIST": ""}).warnings == (f"{name} is given, but empty: {meaning}",)
        assert load_config(path, {"LIST": "S.A:B"}).warnings == ()

    @pytest.mark.parametrize("value", ["", " ", ",", [], None])
    def test_empty_list_as_an_argument_is_a_warning(self, value: object) -> None:
        assert config(table_include_list=value).warnings == (
            "table_include_list is given, but empty: all tables are carried",
        )


ALONE: dict[str, dict[str, object]] = {
    "unknown": {"topic.prefixx": "a"},
    "unknown without a hint": {"xyzzy": "a"},
    "old list": {"table.whitelist": "S.A"},
    "unsupported": {"column.mask.with.3.chars": "S.A.X"},
    "transform": {"transforms": "m", "transforms.m.type": "x.MaskField"},
    "placeholder": {"signal.kafka.topic": "${vault:x}"},
    "twice": {"signal.kafka.groupId": "a", "signal": {"kafka": {"groupId": "b"}}},
    "two spellings": {"cdc.control.schema": "A", "database.cdcschema": "B"},
    "word": {"snapshot.mode": "never"},
    "number": {"max.rows.per.batch": 0},
    "boolean": {"tombstones.on.delete": "perhaps"},
    "text": {"topic.prefix": 1},
    "target": {"target": "not a path"},
    "no target": {"target": None},
    "pipeline": {"pipeline": "a b"},
    "two patterns": {"table.include.list": ["[", "S.A", "("]},
    "both lists": {"column.include.list": "S.A.X", "column.exclude.list": "S.A.Y"},
    "key": {"message.key.columns": "S.A"},
    "snapshot list": {"snapshot.include.collection.list": "*,S.A,("},
    "signal table": {"signal.data.collection": "A"},
    "select": {"snapshot.select.statement.overrides": "S.A"},
    "mapping": {"driver.currentSchema": [1]},
    "password": {"database.password": 123},
    "port": {"database.port": "many"},
    "missing": {"database.user": None},
}


def lines_of(properties: dict[str, object]) -> set[str]:
    with pytest.raises(ConfigurationError) as caught:
        PipelineConfig.from_properties({**BASE, **ADDRESS, **properties})
    lines = str(caught.value).splitlines()
    return {line.removeprefix("  - ") for line in (lines[1:] if len(lines) > 1 else lines)}


@pytest.mark.parametrize("seed", range(60))
def test_mistakes_have_the_same_text_together_and_separately(seed: int) -> None:
    chance = random.Random(seed)
    chosen = chance.sample(list(ALONE), chance.randrange(2, len(ALONE)))
    together: dict[str, object] = {}
    for kind in chosen:
        together.update(ALONE[kind])
    expected = {
        line
        for kind in chosen
        if ALONE[kind].items() <= together.items()  # of two values of a property the later one counts
        for line in lines_of(ALONE[kind])
    }
    assert lines_of(together) == expected
