from __future__ import annotations

from pathlib import Path

import pytest
from support.properties import BASE

from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.parsing import TWICE
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

SELECTS = "snapshot.select.statement.overrides"
SNAKE_SELECTS = SELECTS.replace(".", "_")
ADDRESS = {"database.hostname": "h", "database.dbname": "D", "database.user": "u", "database.password": "p"}


def read(folder: Path, text: str) -> PipelineConfig:
    path = folder / "pipeline.yaml"
    path.write_text(f"pipeline: p\ntarget: /x\n{text}")
    return load_config(path, {})


class TestGivenTwice:
    @pytest.mark.parametrize(
        ("name", "properties"),
        [
            ("snapshot.mode", {"snapshot.mode": "no_data", "snapshot": {"mode": "always"}}),
            ("table.include.list", {"table": {"include.list": ["A"], "include": {"list": ["B"]}}}),
            ("driver.currentSchema", {**ADDRESS, "driver.currentSchema": "A", "driver": {"currentSchema": "B"}}),
            ("spark.conf", {"spark.conf": {"a": "1"}, "spark": {"conf": {"a": "2"}}}),
            ("topic.prefix", {"topic.prefix": "a", "config": {"topic.prefix": "b"}}),
        ],
        ids=["dotted and nested", "nested twice", "of many names", "a mapping", "in a connector and outside it"],
    )
    def test_property_in_two_contradicting_forms_is_refused_by_name(
        self, name: str, properties: dict[str, object]
    ) -> None:
        with pytest.raises(ConfigurationError, match=f"{name}: leave one; it is given twice, and the two contradict"):
            PipelineConfig.from_properties({**BASE, **properties})

    def test_nan_does_not_contradict_itself(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            PipelineConfig.from_properties({**BASE, "high.mark.timeout.s": float("nan")})
        assert str(caught.value).startswith("high.mark.timeout.s: ")

    def test_all_contradicting_properties_are_named(self) -> None:
        nested = {"snapshot": {"mode": "always"}, "topic": {"prefix": "b"}}
        with pytest.raises(
            ConfigurationError, match=r"2 mistakes.*\n  - snapshot\.mode: .* twice.*\n  - topic\.prefix: .* twice"
        ):
            PipelineConfig.from_properties({**BASE, "snapshot.mode": "no_data", "topic.prefix": "a", **nested})

    @pytest.mark.parametrize(
        ("name", "snake"),
        [
            (f"{SELECTS}.S.T_1", f"{SNAKE_SELECTS}.S.T_1"),
            ("driver.currentSchema", "driver_currentSchema"),
            ("signal.consumer.a.b", "signal_consumer.a.b"),
        ],
    )
    def test_property_in_two_contradicting_spellings_is_refused_by_name(self, name: str, snake: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{snake}: leave one; it contradicts another spelling of {name}"):
            PipelineConfig.from_properties({**BASE, **ADDRESS, SELECTS: "S.T_1", name: "SELECT 1", snake: "SELECT 2"})

    def test_property_in_two_forms_with_one_value_is_accepted(self) -> None:
        selects = {SELECTS: "S.T", f"{SELECTS}.S.T": "SELECT 1", f"{SNAKE_SELECTS}.S.T": "SELECT 1"}
        modes = {"snapshot.mode": "always", "snapshot": {"mode": "always"}, "snapshot_mode": "always"}
        made = PipelineConfig.from_properties({**BASE, **selects, **modes})
        assert (made.snapshot_mode, made.snapshot_overrides) == ("always", {"S.T": "SELECT 1"})


class TestMapping:
    def test_mapping_may_be_given_by_dotted_names(self) -> None:
        dotted = {"spark.conf.spark.driver.memory": "2g", "spark.conf": {"spark.ui.enabled": False}}
        made = PipelineConfig.from_properties({**BASE, **ADDRESS, **dotted, "database.options.ProgramName": "p"})
        assert made.database is not None
        assert made.spark.conf == {"spark.driver.memory": "2g", "spark.ui.enabled": "false"}
        assert made.database.options == {"ProgramName": "p"}

    def test_mapping_in_two_contradicting_forms_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=rf"^spark\.conf: {TWICE}"):
            PipelineConfig.from_properties({**BASE, "spark.conf.a": "1", "spark.conf": {"a": "2", "b": "3"}})


class TestFile:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("snapshot.mode: no_data\nsnapshot.mode: always\n", r"snapshot\.mode: TWICE \(lines 3 and 4\)"),
            ("spark:\n  conf:\n    a.b: 1\n    'a.b': 2\n", r"spark\.conf\.a\.b: TWICE \(lines 5 and 6\)"),
            ("topic: {prefix: a}\ntopic: {prefix: b}\n", r"topic: TWICE \(lines 3 and 4\)"),
            ("topic.prefix: a\ntopic: {prefix: b}\n", r"topic\.prefix: TWICE"),
        ],
        ids=["a name", "inside a mapping", "a block", "dotted and nested"],
    )
    def test_name_with_two_values_is_refused(self, tmp_path: Path, text: str, problem: str) -> None:
        with pytest.raises(ConfigurationError, match=problem.replace("TWICE", TWICE)):
            read(tmp_path, text)

    def test_name_given_twice_with_one_value_is_accepted(self, tmp_path: Path) -> None:
        made = read(tmp_path, "snapshot.mode: always\n'snapshot.mode': \"always\"\nspark.conf: {a: 1, a: 1}\n")
        assert (made.snapshot_mode, made.spark.conf) == ("always", {"a": "1"})

    def test_values_merged_into_a_mapping_may_be_overridden(self, tmp_path: Path) -> None:
        merged = "signal:\n  consumer: &one {<<: {a: 1, b: 2}, b: 3}\ndriver: {<<: *one, b: 4}\n"
        address = "".join(f"{name}: {value}\n" for name, value in ADDRESS.items())
        made = read(tmp_path, f"{merged}{address}")
        assert made.database is not None
        assert made.kafka_consumer == {"a": "1", "b": "3"}
        assert made.database.jdbc_options == {"a": "1", "b": "4"}
