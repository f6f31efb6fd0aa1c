"""Configurations of Debezium's connector for Db2 as people publish them; names, hosts and passwords are changed.

Each is pasted below one line that gives the missing target. Forms: the connector's tutorial and
documentation (versions 1 to 3), blog posts, question threads, a Debezium Server and a Strimzi set-up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

CLASS = {"connector.class": "io.debezium.connector.db2.Db2Connector"}
LOGIN = {
    "database.hostname": "db2server",
    "database.port": "50000",
    "database.user": "db2inst1",
    "database.password": "=Secret!",
    "database.dbname": "TESTDB",
}
OLD_HISTORY = {
    "database.history.kafka.bootstrap.servers": "kafka:9092",
    "database.history.kafka.topic": "schema-changes.inventory",
}
HISTORY = {
    "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
    "schema.history.internal.kafka.topic": "schema-changes.inventory",
}
JSON_CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.drop.tombstones": "false",
    "transforms.unwrap.delete.handling.mode": "drop",
}
ROUTE = {
    "transforms": "route",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "play.db2.PLAY.(.*)",
    "transforms.route.replacement": "cdc-$1",
}
OLD = {**CLASS, **LOGIN, "database.server.name": "db2server", **OLD_HISTORY}
NEW = {**CLASS, **LOGIN, "topic.prefix": "fulfillment", **HISTORY}
PLAY = {**NEW, "database.cdcschema": "ASNCDC", "topic.prefix": "play.db2", "table.include.list": "PLAY.CAGE,PLAY.SLOT"}

RUNS: dict[str, dict[str, Any]] = {
    "tutorial of version 1": {**OLD, "tasks.max": "1", "database.cdcschema": "ASNCDC"},
    "tutorial of version 2": {**NEW, "tasks.max": "1", "database.cdcschema": "ASNCDC"},
    "documentation of version 2": {**NEW, "table.include.list": "MYSCHEMA.CUSTOMERS"},
    "control schema by its third name": {**NEW, "database.cdc.schema": "ASNCDC"},
    "whole schema": {**OLD, "database.cdcschema": "ASNCDC", "table.include.list": "DB2INST1.*"},
    "topics of its own": {
        **OLD,
        "database.cdcschema": "ASNCDC",
        "topic.creation.default.replication.factor": 1,
        "topic.creation.default.cleanup.policy": "compact",
        "table.include.list": "DB2INST1.ORDEREVENTS",
        "tombstones.on.delete": "false",
    },
    "search index": {**OLD, "table.include.list": "DB2INST1.USERS"},
    "flattened, with a property of MySQL's": {
        **OLD,
        **JSON_CONVERTERS,
        **UNWRAP,
        "table.include.list": "TRADE.(ORDERS|CASH_BUFFER)",
        "decimal.handling.mode": "double",
        "snapshot.new.tables": "parallel",
    },
    "made by a program": {
        **NEW,
        **JSON_CONVERTERS,
        **UNWRAP,
        "database.server.name": "other",
        "snapshot.mode": "initial",
        "schema.history.internal": "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.add.fields": "op,source.ts_ms",
        "errors.tolerance": "all",
        "errors.log.enable": "true",
    },
    "topic routing": {**PLAY, **ROUTE},
    "capture mode of MongoDB's": {**NEW, "capture.mode": "CHANGE", "tombstones.on.delete": False},
    "by logical tables": {
        **NEW,
        "transforms": "Reroute",
        "transforms.Reroute.type": "io.debezium.transforms.ByLogicalTableRouter",
        "transforms.Reroute.topic.regex": "(.*)shard(.*)",
        "transforms.Reroute.topic.replacement": "$1all",
    },
    "signals and heartbeat": {
        **NEW,
        "signal.data.collection": "DB2INST1.DEBEZIUM_SIGNAL",
        "heartbeat.interval.ms": "10000",
        "snapshot.mode": "schema_only",
        "snapshot.isolation.mode": "read_committed",
        "max.batch.size": "2048",
        "poll.interval.ms": "500",
        "producer.override.sasl.jaas.config": "${file:/run/kafka.properties:jaas}",
    },
}
"""JSON that runs as it was pasted."""

ANSWERED: dict[str, tuple[dict[str, object], list[str]]] = {
    "password in a file": (
        {**PLAY, **ROUTE, "database.password": "${file:/secrets/db2-password}"},
        ["database.password: write ${env:NAME}"],
    ),
    "password in a vault": (
        {**NEW, "database.password": "${vault:secret/db2_password}"},
        ["database.password: write ${env:NAME}"],
    ),
    "password of another notation": (
        {**NEW, "database.password": "${secrets.db2.password}", "capture.mode": "CHANGE"},
        ["database.password: write ${env:NAME}"],
    ),
    "misspelt": ({**NEW, "task.max": 1}, ["task.max: did you mean tasks.max?"]),
    "lists of version 0": (
        {**OLD, "table.whitelist": "S.A", "column.blacklist": "S.A.SSN", "snapshot.mode": "when_not_needed"},
        [
            "table.whitelist is not supported: Debezium renamed it; write table.include.list",
            "column.blacklist is not supported: Debezium renamed it; write column.exclude.list",
            "snapshot.mode: write one of",
        ],
    ),
    "masked": (
        {**NEW, "transforms": "m", "transforms.m.type": "a.MaskField$Value", "transforms.m.fields": "SSN"},
        ["transforms.m: MaskField is not supported"],
    ),
}
"""JSON that needs a person, with all that is said of it."""

PROPERTIES = {
    "standalone, version 1": """\
name=db2-connector-src
connector.class=io.debezium.connector.db2.Db2Connector
database.hostname=10.0.0.1
database.port=50000
database.dbname=TESTDB
database.user=db2inst1
database.password=secret
table.include.list=test.products
database.server.name=db2-connect
database.history=io.debezium.relational.history.KafkaDatabaseHistory
database.history.kafka.bootstrap.servers=0.0.0.0:9092
decimal.handling.mode=double
""",
    "standalone, version 2": """\
tasks.max=1
name=my-db2-connector
connector.class=io.debezium.connector.db2.Db2Connector
database.hostname=localhost
database.user=db2inst1
database.password=12345678
database.dbname=testdb
#    database.cdcschema=OTHER
topic.prefix=db2-connect
table.include.list=DB2INST1.*
schema.history.internal.kafka.topic=schema-changes.inventory
""",
    "incubator": """\
name=db2-connector
connector.class=io.debezium.connector.db2.Db2Connector
database.hostname=localhost
database.user=db2inst1
database.password=admin
database.server.name=db2-connect
database.dbname=TESTDB
database.cdcschema=ASNCDC
database.history.kafka.topic=CDCTESTDB
database.history.use.catalog.before.schema=false
""",
    "Debezium Server": """\
# where the events go
debezium.sink.type=http
debezium.sink.pravega.scope=empty
debezium.source.connector.class=io.debezium.connector.db2.Db2Connector
debezium.source.database.hostname=db2
debezium.source.database.port=50001
debezium.source.database.user=db2inst1
debezium.source.database.password=secret
debezium.source.database.dbname=SAMPLE
debezium.source.database.server.name=db2-connect
debezium.source.table.include.list=DB2INST1.SALES
debezium.source.database.history=io.debezium.relational.history.FileDatabaseHistory
debezium.source.database.history.file.filename=/data/db2.history
debezium.source.offset.storage.file.filename=/data/offsets.dat
debezium.source.offset.flush.interval.ms=0
debezium.format.value=cloudevents
debezium.transforms=unwrap
debezium.transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState
quarkus.log.level=DEBUG
pipeline=samples
""",
}

STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata:
  name: mainframe-cdc
  labels: {strimzi.io/cluster: cdc}
spec:
  class: io.debezium.connector.db2.Db2Connector
  tasksMax: 1
  autoRestart: {enabled: true}
  config:
    database.hostname: db2.example
    database.port: 50000
    database.user: debezium
    database.password: PASSWORD
    database.dbname: ACCOUNTS
    database.server.name: db2-connect
    table.include.list: S.ACCOUNT,S.MOVEMENT
    database.history.kafka.topic: history
"""


def pasted(folder: Path, connector: Mapping[str, object], **beside: object) -> PipelineConfig:
    text = json.dumps({"name": "inventory-connector", "config": connector, **beside}, indent="\t")
    path = folder / "connector.yaml"
    path.write_text(f"target: ./lake\n\n{text}\n", "utf-8")
    return load_config(path, {})


@pytest.mark.parametrize("name", RUNS)
def test_connector_runs_as_it_was_pasted(tmp_path: Path, name: str) -> None:
    made = pasted(tmp_path, RUNS[name])
    assert (made.pipeline, made.target, made.asn_schema) == ("inventory-connector", str(tmp_path / "lake"), "ASNCDC")
    assert made.server_name == RUNS[name].get("topic.prefix", "db2server")
    assert ",".join(made.selection.table_include) == RUNS[name].get("table.include.list", "")
    assert made.database is not None
    assert made.database.password.get_secret_value() == "=Secret!"
    assert made.warnings == ()


@pytest.mark.parametrize("name", ANSWERED)
def test_connector_gets_one_answer_for_each_mistake(tmp_path: Path, name: str) -> None:
    connector, answers = ANSWERED[name]
    with pytest.raises(ConfigurationError) as caught:
        pasted(tmp_path, connector)
    lines = str(caught.value).splitlines()
    lines = [line.removeprefix("  - ") for line in (lines[1:] if len(lines) > 1 else lines)]
    assert len(lines) == len(answers)
    assert all(line.startswith(answer) for line, answer in zip(lines, answers, strict=True)), lines


def test_answer_of_the_rest_interface_is_read(tmp_path: Path) -> None:
    connector = RUNS["documentation of version 2"]
    made = pasted(
        tmp_path,
        {**connector, "name": "inventory-connector"},
        tasks=[{"connector": "inventory-connector", "task": 0}],
        type="source",
    )
    assert made.selection.table_include == ("MYSCHEMA.CUSTOMERS",)
    assert {"tasks", "type"} <= made.ignored.keys()


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "connector.properties"
    path.write_text(f"{PROPERTIES[name]}target=./lake\n", "utf-8")
    made = load_config(path, {})
    assert (made.server_name, made.asn_schema, made.target) == ("db2-connect", "ASNCDC", str(tmp_path / "lake"))
    assert made.database is not None
    assert made.ignored


def test_debezium_server_may_be_nested(tmp_path: Path) -> None:
    path = tmp_path / "application.yaml"
    path.write_text(
        "target: ./lake\npipeline: p\ndebezium:\n  sink: {type: http}\n  source:\n    topic.prefix: server\n"
        "    database: {hostname: h, dbname: D, user: u, password: p, cdcschema: MINE}\n  transforms: r\n"
        "debezium.transforms.r.type: org.apache.kafka.connect.transforms.RegexRouter\n",
        "utf-8",
    )
    made = load_config(path, {})
    assert (made.server_name, made.asn_schema) == ("server", "MINE")
    assert made.ignored.keys() == {"debezium.sink.type", "transforms.r"}


def test_connector_of_strimzi_is_read(tmp_path: Path) -> None:
    path = tmp_path / "connector.yaml"
    path.write_text(f"target: ./lake\n{STRIMZI}", "utf-8")
    made = load_config(path, {})
    assert (made.pipeline, made.server_name) == ("mainframe-cdc", "db2-connect")
    assert made.selection.table_include == ("S.ACCOUNT", "S.MOVEMENT")
    assert made.ignored.keys() == {
        "connector.class", "tasks.max", "spec.autoRestart.enabled", "database.history.kafka.topic",
    }  # fmt: skip
    path.write_text(f"target: ./lake\n{STRIMZI.replace('PASSWORD', '${DB_PASSWORD}')}", "utf-8")
    with pytest.raises(ConfigurationError, match=r"^database\.password: write \$\{env:NAME\}"):
        load_config(path, {})


def test_several_documents_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "connector.yaml"
    path.write_text(f"{STRIMZI}---\nkind: Kafka\n", "utf-8")
    with pytest.raises(ConfigurationError, match="leave one document"):
        load_config(path, {})
