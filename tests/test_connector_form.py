from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_db2cdc.config.connector_form import plain_name
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig

CLASS = "io.debezium.connector.db2.Db2Connector"
VALUES: dict[str, list[str]] = {
    "topic.prefix": ["a", "a.b", "${env:STAGE}-x", "ünï", "a=b:c#d"],
    "cdc.control.schema": ["ASNCDC", "OTHER"],
    "table.include.list": [r"S\.T", r"S\..*,R\.[A-C]{1,2}", r"S\.A\\,B"],
    "column.exclude.list": [r"S\.T\.SSN"],
    "message.key.columns": [r"S\.T:A,B;S\.U:C"],
    "snapshot.mode": ["no_data", "Schema_Only", "when_needed"],
    "max.rows.per.batch": ["5", "100"],
    "tombstones.on.delete": ["true", "false"],
    "signal.data.collection": ['"my cdc".SIGNALS', "CDC.SIGNALS"],
    "signal.consumer.client.id": ["me", "https://x//y /* z */"],
    "poll.interval.ms": ["500"],
}


def nested(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties with their first word as a mapping, where it is not a property of its own."""
    made: dict[str, Any] = {}
    for name, value in properties.items():
        first, _, rest = name.partition(".")
        if rest:
            made.setdefault(first, {})[rest] = value
        else:
            made[name] = value
    return made


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\")


def forms(properties: dict[str, str]) -> dict[str, str]:
    """Return the text of a file in each form, by the file's name."""
    own = {"target": "./lake", "pipeline": "p"}
    above = "pipeline: p\ntarget: ./lake\n"
    strimzi = {"apiVersion": "v1", "kind": "KafkaConnector", "metadata": {"name": "c"}}
    rest_answer = {"name": "c", "config": {**properties, "name": "c"}, "tasks": [{"task": 0}], "type": "source"}
    return {
        "dotted.yaml": yaml.safe_dump({**own, **properties}, allow_unicode=True),
        "nested.yaml": yaml.safe_dump({**own, **nested(properties)}),
        "plain.json": json.dumps({**own, **properties}, indent="\t"),
        "connector.json": json.dumps({**own, "name": "c", "config": properties}, ensure_ascii=False),
        "pasted.yaml": f"{above}{json.dumps({'name': 'c', 'config': properties}, indent=2)}\n",
        "rest.yaml": f"{above}{json.dumps(rest_answer, indent=1)}\n",
        "strimzi.yaml": yaml.safe_dump({**own, **strimzi, "spec": {"class": CLASS, "config": properties}}),
        "strimzi.json": json.dumps({**own, **strimzi, "spec": {"tasksMax": 1, "config": properties}}),
        "plain.properties": "".join(f"{name} = {escaped(value)}\n" for name, value in {**own, **properties}.items()),
        "server.properties": "pipeline=p\ntarget=./lake\n"
        + "".join(f"debezium.source.{name}={escaped(value)}\n" for name, value in properties.items()),
        "server.yaml": yaml.safe_dump({**own, "debezium": {"source": nested(properties)}}),
    }


def read(folder: Path, name: str, text: str) -> PipelineConfig:
    (folder / name).write_text(text, "utf-8")
    return load_config(folder / name, {"STAGE": "test"}).model_copy(update={"ignored": {}})


@pytest.mark.parametrize("seed", range(15))
def test_every_form_of_the_same_properties_means_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample(list(VALUES), chance.randrange(1, len(VALUES)))
    properties = {name: chance.choice(VALUES[name]) for name in names}
    made = {name: read(tmp_path, name, text) for name, text in forms(properties).items()}
    assert [name for name, config in made.items() if config != made["dotted.yaml"]] == []
    expected = properties.get("topic.prefix", "p").replace("${env:STAGE}", "test")
    assert made["server.properties"].server_name == expected


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("debezium.source.database.port", "database.port"),
        ("debezium.transforms", "transforms"),
        ("debezium.transforms.a.type", "transforms.a.type"),
        ("debezium.predicates.p.type", "predicates.p.type"),
        ("debezium.sink.type", "debezium.sink.type"),
        ("debezium.source", "debezium.source"),
        ("debeziumx.source.a", "debeziumx.source.a"),
        ("database.port", "database.port"),
    ],
)
def test_name_of_debezium_server_loses_its_prefix(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@pytest.mark.parametrize("spec", [None, 5, {"config": None}, {"config": []}])
def test_strimzi_connector_may_have_no_settings(tmp_path: Path, spec: object) -> None:
    text = json.dumps({"kind": "KafkaConnector", "metadata": {"name": "c"}, "spec": spec, "target": "/x"})
    assert read(tmp_path, "a.json", text).pipeline == "c"
