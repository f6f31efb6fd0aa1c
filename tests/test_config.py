from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.properties import config, refusal

from airflow_provider_db2cdc.cdc.job import ApplySettings
from airflow_provider_db2cdc.cdc.selection.message_key import KeyRule
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.parsing import split_list
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.config.properties import ALIASES, PROPERTIES, USED, find_property
from airflow_provider_db2cdc.errors import ConfigurationError

CONNECTOR = {
    "name": "sales-connector",
    "config": {
        "connector.class": "io.debezium.connector.db2.Db2Connector",
        "tasks.max": "1",
        "database.hostname": "db2.example",
        "database.port": "50001",
        "database.user": "cdc",
        "database.password": "not-for-eyes",
        "database.dbname": "SALES",
        "topic.prefix": "prod",
        "table.include.list": "SALES\\..*,HR\\.EMP",
        "snapshot.mode": "schema_only",
        "tombstones.on.delete": "false",
        "poll.interval.ms": "500",
        "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
        "skipped.operations": "t",
        "driver.currentSchema": "X",
        "incremental.snapshot.chunk.size": "4096",
    },
}


class TestConnectorJson:
    def test_connector_json_is_read_unchanged(self) -> None:
        made = PipelineConfig.from_properties({**CONNECTOR, "target": "/lake/sales"})
        assert made.pipeline == "sales-connector"
        assert made.server_name == "prod"
        assert made.selection.table_include == ("SALES\\..*", "HR\\.EMP")
        assert made.snapshot_mode == "no_data"
        assert made.settings == ApplySettings(tombstones=False, snapshot_chunk_rows=4096)
        assert made.database is not None
        assert (made.database.port, made.database.user, made.database.dbname) == (50001, "cdc", "SALES")
        assert made.database.jdbc_options == {"currentSchema": "X"}

    def test_ignored_properties_are_named_with_a_reason(self) -> None:
        ignored = PipelineConfig.from_properties({**CONNECTOR, "target": "/lake/sales"}).ignored
        assert set(ignored) == {
            "connector.class",
            "tasks.max",
            "poll.interval.ms",
            "schema.history.internal.kafka.bootstrap.servers",
        }
        assert all(ignored.values())

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("streaming.query.timespan.seconds", "max.rows.per.batch"),
            ("z.stop.lsn.ignore", "z/OS"),
            ("poll.dispatch.interval.ms", "No connector process runs"),
            ("statistics.metrics.enabled", "No connector process runs"),
            ("topic.heartbeat.name", "no Kafka"),
            ("custom.sanitize.pattern", "secrets"),
            ("signal.kafka.poll.timeout.ms", "No connector process runs"),
            ("signal.emit.failure.max.retries", "No connector process runs"),
            ("config.action.reload", "No connector process runs"),
            ("transaction.metadata.factory", "no Kafka"),
            ("log.position.check.enable", "Every tick checks"),
            ("table.ignore.builtin", "registered tables"),
        ],
    )
    def test_properties_of_the_db2_connector_are_all_known(self, name: str, reason: str) -> None:
        assert reason in config(**{name: "1"}).ignored[name]

    @pytest.mark.parametrize(
        ("name", "harmless"),
        [
            ("guardrail.collections.max", "0"),
            ("guardrail.collections.limit.action", "warn"),
            ("update.capture.table.prune.ind", "false"),
            ("event.converting.failure.handling.mode", "fail"),
        ],
    )
    def test_unsupported_property_with_a_harmless_value_is_accepted(self, name: str, harmless: str) -> None:
        assert config(**{name: harmless}) == config()
        assert f"{name} is not supported" in refusal(**{name: "7"})

    def test_connector_of_another_database_is_refused(self) -> None:
        assert "another connector's" in refusal(**{"connector.class": "io.debezium.connector.mysql.MySqlConnector"})


def test_python_names_mean_the_same() -> None:
    dotted = config(**{"table.include.list": "A\\.B", "max.rows.per.batch": "5", "cdc.control.schema": "ASN2"})
    snake = config(table_include_list="A\\.B", max_rows_per_batch=5, cdc_control_schema="ASN2")
    assert dotted == snake
    assert snake.asn_schema == "ASN2"
    assert snake.max_rows_per_batch == 5


def test_defaults() -> None:
    made = config()
    assert made.settings == ApplySettings()
    assert (made.server_name, made.asn_schema, made.snapshot_mode) == ("sales", "ASNCDC", "initial")
    assert (made.max_rows_per_batch, made.capture_stale_after_s, made.accept_update_rows) == (1_000_000, 900, False)
    assert made.spark.master == "local[*]"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), (False, False)])
def test_deletion_vectors_can_be_required_or_avoided(text: object, value: bool) -> None:
    assert config(**{"target.deletion.vectors": text}).settings == ApplySettings(deletion_vectors=value)
    assert "target.deletion.vectors" in refusal(**{"target.deletion.vectors": "perhaps"})


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("A\\.B,C\\.D", ["A\\.B", "C\\.D"]),
        (" A.B , C.D ", ["A.B", "C.D"]),
        ("S\\.T{1,3},S\\.U", ["S\\.T{1,3}", "S\\.U"]),
        ("S\\.A\\,B,S\\.U", ["S\\.A\\,B", "S\\.U"]),
        ("S\\.[,(],S\\.U", ["S\\.[,(]", "S\\.U"]),
        ("S\\.(A,B|C),S\\.U", ["S\\.(A,B|C)", "S\\.U"]),
        ("S\\.A\\{,S\\.U", ["S\\.A\\{", "S\\.U"]),
        ("S\\\\,T", ["S\\\\", "T"]),
        ("", []),
        ("A,,B,", ["A", "B"]),
        ('"S"."a,b",S\\.T', ['"S"."a,b"', "S\\.T"]),
        ('"S"."a(""[,c", S."x,y"', ['"S"."a(""[,c"', 'S."x,y"']),
        ('"S"."T"."c,d",S\\.T\\.E', ['"S"."T"."c,d"', "S\\.T\\.E"]),
        ('S\\.[",],"S"."a\\",X', ['S\\.[",]', '"S"."a\\"', "X"]),
    ],
)
def test_commas_split_only_between_expressions(text: str, items: list[str]) -> None:
    assert split_list(text) == items


def test_key_columns_are_read_whole() -> None:
    made = config(**{"message.key.columns": "S\\.T{1,2}:A,B;(?:S|R)\\.U:C"})
    assert made.selection.key_rules == (KeyRule("S\\.T{1,2}", ("A", "B")), KeyRule("(?:S|R)\\.U", ("C",)))
    assert config(message_key_columns="").selection == config().selection


def test_yaml_list_is_taken_as_it_is() -> None:
    assert config(table_include_list=["A,B", "C"]).selection.table_include == ("A,B", "C")


class TestRefusal:
    def test_unknown_property_names_the_nearest(self) -> None:
        text = refusal(**{"table.includ.list": "x"})
        assert "table.includ.list" in text
        assert "did you mean table.include.list" in text

    def test_unsupported_property_is_named(self) -> None:
        assert "column.mask.with.3.chars is not supported" in refusal(**{"column.mask.with.3.chars": "A.B.C"})

    def test_all_wrong_properties_are_named_at_once(self) -> None:
        text = refusal(transforms="unwrap", nonsense="1", **{"signal.nonsense": "A.B"})
        assert all(name in text for name in ("transforms", "nonsense", "signal.nonsense"))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("snapshot.mode", "sometimes"),
            ("snapshot.group.chunks", 0),
            ("snapshot.budget.s", -1),
            ("incremental.snapshot.watermarking.strategy", "insert"),
            ("max.rows.per.batch", "many"),
            ("max.rows.per.batch", 0),
            ("pipeline", "a b"),
            ("target", ""),
            ("key.change.detection", "guess"),
            ("tombstones.on.delete", "perhaps"),
        ],
    )
    def test_wrong_value_is_refused_by_the_propertys_name(self, name: str, value: object) -> None:
        assert name.split(".")[0] in refusal(**{name: value})

    @pytest.mark.parametrize("name", ["signal.consumer.x", "driver.x", "spark.conf.x"])
    def test_wrong_value_within_a_mapping_is_refused(self, name: str) -> None:
        given = {"spark.conf": {"x": [1]}} if name == "spark.conf.x" else {name: [1]}
        address = {f"database.{one}": "x" for one in ("hostname", "dbname", "user", "password")}
        assert refusal(**address, **given).startswith(f"{name}: ")

    @pytest.mark.parametrize("value", ["S\\.T", "S\\.(T:A", "S\\.T:", ["S\\.T:A"]])
    def test_invalid_key_columns_are_refused_by_the_propertys_name(self, value: object) -> None:
        assert "message.key.columns" in refusal(**{"message.key.columns": value})

    def test_contradicting_spellings_are_refused(self) -> None:
        text = refusal(**{"cdc.control.schema": "A", "database.cdcschema": "B"})
        assert text == "database.cdcschema: leave one; it contradicts another spelling of cdc.control.schema"

    def test_value_that_asks_for_the_default_behaviour_is_accepted(self) -> None:
        config(**{"provide.transaction.metadata": False, "db2.platform": "LUW", "transforms": ""})
        assert "provide.transaction.metadata" in refusal(**{"provide.transaction.metadata": True})

    def test_custom_query_is_refused_with_its_replacement(self) -> None:
        for name, value in (("snapshot.query.mode", "custom"), ("snapshot.query.mode.custom.name", "mine")):
            text = refusal(**{name: value})
            assert f"{name} is not supported" in text
            assert "snapshot.select.statement.overrides" in text
        assert config(**{"snapshot.query.mode": " SELECT_ALL"}) == config()

    @pytest.mark.parametrize("name", ["table.include.list", "signal.enabled.channels"])
    @pytest.mark.parametrize("value", [5, True, False])
    def test_value_that_is_not_a_list_is_refused_by_the_propertys_name(self, name: str, value: object) -> None:
        assert name in refusal(**{name: value})

    def test_secrets_are_not_shown(self) -> None:
        bad = {"database.hostname": "h", "database.password": "s3cret", "database.port": "s3cret"}
        assert "s3cret" not in refusal(**bad)

    def test_unknown_python_argument(self) -> None:
        assert "table_includes" in refusal(table_includes="x")


def test_password_is_not_in_the_repr() -> None:
    made = PipelineConfig.from_properties({**CONNECTOR, "target": "/lake/sales"})
    assert "not-for-eyes" not in repr(made)
    assert "not-for-eyes" not in str(made.model_dump())


def test_numbers_and_booleans_are_texts_to_drivers_and_spark(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "pipeline: p\ntarget: /x\n"
        "database: {hostname: h, dbname: D, user: u, password: p, options: {ArrayInputChain: 0, EnableWLB: true}}\n"
        "driver: {queryDataSize: 65536, enableSysplexWLB: false}\n"
        "spark.conf: {spark.sql.shuffle.partitions: 8, spark.memory.fraction: 0.5, spark.ui.enabled: false}\n"
        "signal.consumer.max.poll.records: 5\n"
    )
    made = load_config(path, {})
    assert made.database is not None
    assert made.database.options == {"ArrayInputChain": "0", "EnableWLB": "true"}
    assert made.database.jdbc_options == {"queryDataSize": "65536", "enableSysplexWLB": "false"}
    assert made.spark.conf == {
        "spark.sql.shuffle.partitions": "8",
        "spark.memory.fraction": "0.5",
        "spark.ui.enabled": "false",
    }
    assert made.kafka_consumer == {"max.poll.records": "5"}


def test_value_that_is_not_text_is_refused_for_a_driver() -> None:
    assert "queryDataSize" in refusal(**{"database.hostname": "h", "driver.queryDataSize": ["a"]})


def test_password_without_quotes_is_refused_and_not_shown() -> None:
    """YAML reads 0123 as 83: the meant value is lost."""
    told = refusal(
        **{"database.hostname": "h", "database.dbname": "D", "database.user": "u", "database.password": 8371}
    )
    assert "database.password: put the password in quotes" in told
    assert "8371" not in told


class TestSignals:
    def test_signals_come_by_the_table_and_airflow_by_default(self) -> None:
        made = config()
        assert (made.signal_channels, made.signal_table, made.signal_file) == (("source", "airflow"), "", None)
        assert (made.kafka_group_id, made.kafka_topic, made.kafka_bootstrap_servers) == ("", "", "")

    def test_signals_take_debeziums_names(self) -> None:
        made = config(
            **{
                "signal.data.collection": "CDC.SIGNALS",
                "signal.enabled.channels": "source,kafka, my.module:Channel",
                "signal.kafka.topic": "asks",
                "signal.kafka.bootstrap.servers": "a:9092,b:9092",
                "signal.kafka.groupId": "mine",
                "signal.consumer.security.protocol": "SASL_SSL",
                "signal.consumer.client.id": "me",
                "incremental.snapshot.watermarking.strategy": "insert_delete",
            }
        )
        assert made.signal_table == "CDC.SIGNALS"
        assert made.signal_channels == ("source", "kafka", "my.module:Channel")
        assert (made.kafka_topic, made.kafka_group_id) == ("asks", "mine")
        assert made.kafka_bootstrap_servers == "a:9092,b:9092"
        assert made.kafka_consumer == {"security.protocol": "SASL_SSL", "client.id": "me"}
        assert made.settings.watermarking == "insert_delete"

    def test_signals_may_be_switched_off(self) -> None:
        assert config(**{"signal.enabled.channels": ""}).signal_channels == ()

    def test_signal_file_is_relative_to_the_configuration(self, tmp_path: Path) -> None:
        path = tmp_path / "pipeline.yaml"
        path.write_text("pipeline: p\ntarget: /x\nsignal:\n  file: asks.jsonl\n  enabled.channels: [file]\n")
        made = load_config(path, {})
        assert (made.signal_file, made.signal_channels) == (tmp_path / "asks.jsonl", ("file",))

    @pytest.mark.parametrize("name", ["SIGNALS", "DB.CDC.SIGNALS", '"CDC.SIGNALS', ".SIGNALS"])
    def test_signal_table_is_a_schema_and_a_table(self, name: str) -> None:
        text = refusal(**{"signal.data.collection": name})
        assert f"signal.data.collection: {name!r} is not schema.table" in text
        assert config(**{"signal.data.collection": '"my cdc".SIGNALS'}).signal_table == '"my cdc".SIGNALS'

    @pytest.mark.parametrize("name", ["table.include.list", "column.exclude.list", "snapshot.include.collection.list"])
    def test_list_entry_that_is_not_an_expression_is_named(self, name: str) -> None:
        assert f"{name}: '[' is not a regular expression" in refusal(**{name: ["ok", "["]})

    def test_custom_selects_by_either_spelling_of_the_property(self) -> None:
        for name in ("snapshot.select.statement.overrides", "snapshot_select_statement_overrides"):
            made = config(**{name: "S.T_1", f"{name}.S.T_1": "SELECT 1"})
            assert (made.snapshot_overridden, made.snapshot_overrides) == (("S.T_1",), {"S.T_1": "SELECT 1"})
        assert "overrides.S.T is missing" in refusal(**{"snapshot.select.statement.overrides": "S.T"})

    def test_settings_of_snapshots_reach_the_job(self) -> None:
        made = config(snapshot_group_chunks="3", snapshot_budget_s="0", incremental_snapshot_chunk_size=7)
        assert made.settings == ApplySettings(snapshot_group_chunks=3, snapshot_budget_s=0, snapshot_chunk_rows=7)


class TestFile:
    def write(self, folder: Path, text: str, name: str = "pipeline.yaml") -> Path:
        path = folder / name
        path.write_text(text)
        return path

    def test_nested_and_dotted_names_mix(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            "pipeline: sales\ntarget: lake/sales\ndatabase:\n  hostname: h\n  dbname: D\n"
            "table.include.list: [S\\.A, S\\.B]\nspark:\n  conf:\n    spark.driver.memory: 2g\n",
        )
        made = load_config(path, {"DB2CDC_USER": "u", "DB2CDC_PASSWORD": "p"})
        assert made.selection.table_include == ("S\\.A", "S\\.B")
        assert made.spark.conf == {"spark.driver.memory": "2g"}
        assert made.database is not None
        assert made.database.password.get_secret_value() == "p"

    def test_paths_are_relative_to_the_file(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "pipeline: p\ntarget: ./lake\nspark.jars: jars\noffsets.file: o.json\n")
        made = load_config(path, {})
        assert made.target == str(tmp_path / "lake")
        assert made.spark.jars == tmp_path / "jars"
        assert made.offsets_file == tmp_path / "o.json"

    @pytest.mark.parametrize("target", ["s3a://lake/sales", "main.sales", "/lake/x"])
    def test_other_targets_stay(self, tmp_path: Path, target: str) -> None:
        assert load_config(self.write(tmp_path, f"pipeline: p\ntarget: {target}\n"), {}).target == target

    def test_placeholder_takes_the_variable(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "pipeline: p\ntarget: /x\ntopic.prefix: a-${env:STAGE}\n")
        assert load_config(path, {"STAGE": "test"}).server_name == "a-test"
        with pytest.raises(ConfigurationError, match=r"topic\.prefix: set the environment variable STAGE"):
            load_config(path, {})

    def test_placeholder_in_a_list_takes_the_variable(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "pipeline: p\ntarget: /x\ncolumn.exclude.list: ['${env:APP}\\.T\\.SSN']\n")
        assert load_config(path, {"APP": "S"}).selection.column_exclude == (r"S\.T\.SSN",)
        with pytest.raises(ConfigurationError, match=r"column\.exclude\.list: set the environment variable APP"):
            load_config(path, {})

    def test_text_of_a_configuration_has_no_values_that_may_be_secret(self) -> None:
        made = PipelineConfig.from_properties(
            {
                "pipeline": "p",
                "target": "/t",
                "signal.consumer.sasl.password": "s3cret",
                "spark.conf": {"spark.hadoop.fs.s3a.secret.key": "s3cret"},
            }
        )
        assert made.kafka_consumer == {"sasl.password": "s3cret"}
        assert "s3cret" not in f"{made} {made!r}"

    def test_spark_connect_is_refused_and_its_token_is_not_shown(self) -> None:
        given = {"pipeline": "p", "target": "/t", "spark.master": "sc://host:443/;token=s3cret"}
        with pytest.raises(ConfigurationError, match=r"spark\.master is a Spark Connect server") as refused:
            PipelineConfig.from_properties(given)
        assert "s3cret" not in str(refused.value)

    def test_variables_do_not_override_the_file(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, json.dumps({**CONNECTOR, "target": "/x"}), "connector.json")
        made = load_config(path, {"DB2CDC_PASSWORD": "other", "DB2CDC_USER": "other"})
        assert made.database is not None
        assert made.database.user == "cdc"
        assert made.database.password.get_secret_value() == "not-for-eyes"

    def test_without_database_the_variables_do_not_make_one(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "pipeline: p\ntarget: /x\n")
        assert load_config(path, {"DB2CDC_PASSWORD": "p", "DB2CDC_USER": "u"}).database is None

    def test_database_is_omitted_for_airflow_without_its_password(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            "pipeline: p\ntarget: /x\ndatabase:\n  hostname: h\n  dbname: D\n  password: ${env:NOT_SET}\n"
            "driver.currentSchema: X\nspark.conf: {a: b}\n",
        )
        made = load_config(path, {"DB2CDC_USER": "u"}, with_database=False)
        assert (made.database, made.spark.conf) == (None, {"a": "b"})
        assert {name: "extras of the connection" in why for name, why in made.ignored.items()} == {
            "driver.currentSchema": True
        }
        with pytest.raises(ConfigurationError, match="NOT_SET"):
            load_config(path, {})

    @pytest.mark.parametrize("text", ["- a\n- b\n", "", "a: [1\n", "a: 2026-13-45\n"])
    def test_file_that_is_not_a_mapping_is_refused_by_its_name(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"pipeline\.yaml"):
            load_config(self.write(tmp_path, text), {})

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="cannot be read"):
            load_config(tmp_path / "none.yaml", {})

    def test_example_is_complete(self) -> None:
        example = Path(__file__).parents[1] / "docs" / "examples" / "pipeline.yaml"
        made = load_config(example, {"DB2CDC_PASSWORD": "p"})
        assert made.database is not None
        assert made.ignored == {}


DECIDED_BY_MODE = {"snapshot_on_gap", "recover_offsets", "streaming"}
"""Settings of the job that follow from snapshot.mode."""


class TestTable:
    def test_every_used_property_fills_a_field_that_exists(self) -> None:
        fields = PipelineConfig.model_fields
        assert {item.field.split(".")[0] for item in USED} <= set(fields)

    def test_every_setting_of_the_job_is_a_property(self) -> None:
        filled = {item.field for item in USED}
        assert set(ApplySettings.__dataclass_fields__) - DECIDED_BY_MODE <= filled

    def test_every_setting_reaches_the_job(self) -> None:
        """Each gets a value other than its default, and the job gets that value."""
        others = {
            "tombstones": False,
            "key_change_detection": "none",
            "watermarking": "insert_insert",
            "snapshot_isolation": "repeatable_read",
            "snapshot_chunk_bytes": 1_000_000,
            "snapshot_group_chunks": 3,
            "end_at": "interval",
            "deletion_vectors": False,
            "gap_repair": "heal",
        }
        names = {item.field: item.name for item in USED}
        for field in set(ApplySettings.__dataclass_fields__) - DECIDED_BY_MODE:
            default = getattr(ApplySettings(), field)
            other = others[field] if field in others else default + 1
            assert getattr(config(**{names[field]: other}).settings, field) == other != default, field

    def test_names_are_given_once(self) -> None:
        assert not set(ALIASES) & set(PROPERTIES)
        assert set(ALIASES.values()) <= set(PROPERTIES)

    def test_every_property_has_a_description(self) -> None:
        assert all(item.text for item in PROPERTIES.values())

    @pytest.mark.parametrize("name", ["column.mask.*", "driver.*", "nothing"])
    def test_wildcards_are_not_names(self, name: str) -> None:
        item = find_property(name)
        assert item is None or item.name.endswith("*")


class Whole:
    """A snapshotter of one's own."""

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        return not known

    def stream(self) -> bool:
        return True

    def snapshot_on_gap(self) -> bool:
        return True

    def recover_offset(self) -> bool:
        return False


class Failing(Whole):
    def snapshot_on_gap(self) -> bool:
        raise RuntimeError("not today")

    def recover_offset(self) -> bool:
        raise RuntimeError("not today")


class Partial:
    def stream(self) -> bool:
        return True


class Demanding(Whole):
    def __init__(self, what: str) -> None:
        self.what = what


class TestSnapshotter:
    def custom(self, name: str) -> PipelineConfig:
        return config(**{"snapshot.mode": "custom", "snapshot.mode.custom.name": name})

    def test_custom_snapshotter_decides(self) -> None:
        made = self.custom(f"{__name__}:Whole")
        decides = made.snapshotter
        assert (decides.snapshot_data(False, False), decides.snapshot_data(True, False)) == (True, False)
        assert (decides.stream(), decides.recover_offset()) == (True, False)
        assert made.settings.snapshot_on_gap is True

    @pytest.mark.parametrize("question", ["snapshot_on_gap", "recover_offset"])
    def test_snapshotter_that_fails_is_named_with_the_question(self, question: str) -> None:
        decides = self.custom(f"{__name__}:Failing").snapshotter
        with pytest.raises(ConfigurationError, match=rf"Failing failed in {question} \(RuntimeError: not today\)"):
            getattr(decides, question)()

    @pytest.mark.parametrize(
        ("mode", "yes"),
        [
            ("initial", "new stream"),
            ("always", "new again stream on_gap"),
            ("initial_only", "new"),
            ("no_data", "stream"),
            ("schema_only", "stream"),
            ("recovery", "stream recovers"),
            ("schema_only_recovery", "stream recovers"),
            ("when_needed", "new stream on_gap"),
            ("configuration_based", ""),
        ],
    )
    def test_snapshotter_of_each_mode_answers_as_debezium_describes(self, mode: str, yes: str) -> None:
        made = config(**{"snapshot.mode": mode}).snapshotter
        answers = {
            "new": made.snapshot_data(known=False, in_progress=False),
            "again": made.snapshot_data(known=True, in_progress=False),
            "stream": made.stream(),
            "on_gap": made.snapshot_on_gap(),
            "recovers": made.recover_offset(),
        }
        assert [name for name, answer in answers.items() if answer] == yes.split()
        assert not made.snapshot_data(known=True, in_progress=True), "an open snapshot continues"

    @pytest.mark.parametrize("switch", ["snapshot.data", "start.stream", "snapshot.on.data.error"])
    def test_switches_answer_each_for_itself(self, switch: str) -> None:
        prefix = "snapshot.mode.configuration.based."
        made = config(**{"snapshot.mode": "configuration_based", f"{prefix}{switch}": True}).snapshotter
        given = {
            "snapshot.data": made.snapshot_data(known=False, in_progress=False),
            "start.stream": made.stream(),
            "snapshot.on.data.error": made.snapshot_on_gap(),
        }
        assert [name for name, answer in given.items() if answer] == [switch]
        assert not made.snapshot_data(known=True, in_progress=False)

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("", "names no class"),
            ("json:Nothing", "names no class"),
            (".relative:Class", "names no class"),
            (f"{__name__}:Demanding", "cannot be made without arguments"),
            (f"{__name__}:Partial", "has no method snapshot_data"),
        ],
    )
    def test_class_that_is_not_a_snapshotter_is_refused_by_the_property(self, path: str, reason: str) -> None:
        problem = rf"snapshot\.mode\.custom\.name: '{path}' {reason}.*Name a class as module:Class"
        with pytest.raises(ConfigurationError, match=problem):
            _ = self.custom(path).snapshotter


def test_ticks_of_intervals_are_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match=r"tick\.repeat\.s is given, and end\.at is interval\. Remove one"):
        PipelineConfig.from_properties({"pipeline": "p", "target": "/t", "end.at": "interval", "tick.repeat.s": 60})
    assert PipelineConfig.from_properties({"pipeline": "p", "target": "/t", "tick.repeat.s": 60}).repeat_s == 60
