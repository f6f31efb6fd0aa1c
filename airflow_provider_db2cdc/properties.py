"""Every property that a pipeline's configuration may name, as data: Debezium's Db2 connector's, and our own.

A property is *used*; or *ignored*, because it has no meaning without Kafka or a running connector (then the reason is
reported); or *refused*, because it would change what is delivered and is not supported yet. A refused property is let
pass with a value that asks for what is done anyway (`accepts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Kind = Literal["used", "ignored", "refused"]
Form = Literal["text", "list", "path", "mapping"]


@dataclass(frozen=True)
class Property:
    """One property; a `name` that ends with `*` stands for all that begin so.

    `text` says what it does, why it is ignored, or why it is refused. `field` is the place in PipelineConfig that a
    used one fills (one with `*` fills a mapping there); `form` is how its text is read; `default` is how the
    documentation writes its default.
    """

    name: str
    kind: Kind
    text: str
    field: str = ""
    form: Form = "text"
    default: str = ""
    accepts: tuple[str, ...] = ()


def _used(name: str, field: str, text: str, default: str = "", form: Form = "text") -> Property:
    return Property(name, "used", text, field, form, default)


def _ignored(reason: str, *names: str) -> tuple[Property, ...]:
    return tuple(Property(name, "ignored", reason) for name in names)


def _refused(name: str, reason: str, *accepts: str) -> Property:
    return Property(name, "refused", reason, accepts=accepts)


USED = (
    _used("pipeline", "pipeline", "Name of the pipeline: letters, digits, '.', '_' and '-'.", "name"),
    _used("target", "target", "Where the Delta tables lie: a path, or a catalog's schema.", form="path"),
    _used("topic.prefix", "server_name", "Name of the source in every event's `source.name`.", "pipeline"),
    _used("cdc.control.schema", "asn_schema", "Schema of the capture agent's control tables.", "ASNCDC"),
    _used("table.include.list", "selection.table_include", "Regexes of `schema.table` to carry.", "all", "list"),
    _used("table.exclude.list", "selection.table_exclude", "Regexes of `schema.table` to leave out.", form="list"),
    _used("column.include.list", "selection.column_include", "Regexes of `schema.table.column`.", "all", "list"),
    _used("column.exclude.list", "selection.column_exclude", "Regexes of columns to leave out.", form="list"),
    _used(
        "snapshot.mode",
        "snapshot_mode",
        "`initial`, `always`, `initial_only`, `no_data`, `recovery`, `when_needed`, `configuration_based`, `custom`.",
        "initial",
    ),
    _used("snapshot.mode.configuration.based.snapshot.data", "snapshot_data", "Snapshot new tables.", "false"),
    _used("snapshot.mode.configuration.based.start.stream", "snapshot_stream", "Pull changes.", "false"),
    _used(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        "snapshot_on_data_error",
        "Snapshot a table anew whose changes were lost.",
        "false",
    ),
    _used("snapshot.mode.custom.name", "snapshot_custom", "The class of `custom`, as `module:Class`."),
    _used(
        "snapshot.include.collection.list",
        "snapshot_include",
        "Regexes of the tables that begin with a snapshot; the others begin without.",
        "all",
        "list",
    ),
    _used(
        "snapshot.select.statement.overrides", "snapshot_overridden", "Tables with a select of their own.", form="list"
    ),
    _used("snapshot.select.statement.overrides.*", "snapshot_overrides", "The select that a snapshot of it reads."),
    _used(
        "snapshot.isolation.mode",
        "snapshot_isolation",
        "`read_committed` (CS), `repeatable_read` (RS), `exclusive` (RR); all read committed rows alone.",
        "read_committed",
    ),
    _used("snapshot.fetch.size", "snapshot_fetch_rows", "Rows that the driver fetches at once in a snapshot.", "10000"),
    _used("query.fetch.size", "query_fetch_rows", "Rows that the driver fetches at once of changes.", "10000"),
    _used("tombstones.on.delete", "tombstones", "Whether a delete event is followed by a tombstone.", "true"),
    _used(
        "key.change.detection",
        "key_change_detection",
        "`adjacent`: a delete directly before an insert of one commit name each other's key, as in Debezium; `none`.",
        "adjacent",
    ),
    _used("incremental.snapshot.chunk.size", "snapshot_chunk_rows", "Rows of one chunk of a snapshot.", "200000"),
    _used("snapshot.group.chunks", "snapshot_group_chunks", "Chunks that are read and published together.", "8"),
    _used(
        "snapshot.budget.s",
        "snapshot_budget_s",
        "A tick's time for snapshots: no group of chunks is begun later, the next tick goes on.",
        "900",
    ),
    _used(
        "incremental.snapshot.watermarking.strategy",
        "watermarking",
        "How a snapshot learns that capture has passed its read: `read_only` by the source's clock, `insert_insert` "
        "and `insert_delete` by rows in the captured signal table.",
        "read_only",
    ),
    _used("signal.data.collection", "signal_table", "The table of signals, as `schema.table`."),
    _used(
        "signal.enabled.channels",
        "signal_channels",
        "Where signals come from: `source` (the signal table), `airflow`, `file`, `kafka`, a class as `module:Class`.",
        "source, airflow",
        "list",
    ),
    _used(
        "notification.enabled.channels",
        "notification_channels",
        "Where notifications go: `delta` (the target's journal, always), `log`, `airflow`, a class as `module:Class`.",
        "delta, log",
        "list",
    ),
    _used("signal.file", "signal_file", "The file of signals, a JSON object a line.", form="path"),
    _used("signal.kafka.topic", "kafka_topic", "The topic of signals.", "<topic.prefix>-signal"),
    _used("signal.kafka.bootstrap.servers", "kafka_bootstrap_servers", "Kafka's brokers."),
    _used("signal.kafka.groupId", "kafka_group_id", "The consumer group that keeps the offset.", "kafka-signal"),
    _used("signal.consumer.*", "kafka_consumer", "Properties of the consumer of signals."),
    _used("snapshot.max.threads", "parallel_reads", "JDBC readers beside each other for one table.", "8"),
    _used("parallel.tables", "parallel_tables", "Tables that are applied beside each other.", "4"),
    _used("rows.per.read", "rows_per_read", "Change rows that one JDBC reader takes before another opens.", "50000"),
    _used(
        "high.mark.timeout.s", "high_mark_timeout_s", "How long a snapshot waits for capture to pass its read.", "600"
    ),
    _used(
        "max.rows.per.batch", "max_rows_per_batch", "Change rows of one table in a tick, rounded to commits.", "1000000"
    ),
    _used("capture.stale.after.s", "capture_stale_after_s", "Age of the capture's position that is an error.", "900"),
    _used(
        "accept.update.rows",
        "accept_update_rows",
        "Carry tables whose updates are captured as the after image alone, though a changed key then goes unseen.",
        "false",
    ),
    _used("offsets.file", "offsets_file", "The command line's offsets.", "<target>/_db2cdc/offsets.json", "path"),
    _used("database.hostname", "database.hostname", "Db2's host (command line; Airflow has a connection for it)."),
    _used("database.port", "database.port", "Db2's port.", "50000"),
    _used("database.dbname", "database.dbname", "The database's name."),
    _used("database.user", "database.user", "The user.", "$DB2CDC_USER"),
    _used("database.password", "database.password", "The password.", "$DB2CDC_PASSWORD"),
    _used("database.ssl", "database.ssl", "Whether to connect by TLS.", "false"),
    _used("database.ssl.certificate", "database.ssl_certificate", "PEM file of the server's certificate.", "", "path"),
    _used("database.options", "database.options", "Keywords of Db2's CLI driver, name to value.", form="mapping"),
    _used("driver.*", "database.jdbc_options", "Properties of Db2's JDBC driver, for Spark."),
    _used("spark.master", "spark.master", "Spark's master (command line).", "local[*]"),
    _used("spark.jars", "spark.jars", "Folder of jars, as `db2cdc jars` fills it.", "", "path"),
    _used("spark.packages", "spark.packages", "Maven coordinates instead of a folder.", form="list"),
    _used("spark.conf", "spark.conf", "Further Spark settings, name to value.", form="mapping"),
    _used("spark.binary", "spark.binary", "The spark-submit to call.", "the installed pyspark's"),
)

ALIASES = {
    "name": "pipeline",
    "database.server.name": "topic.prefix",
    "driver.sslConnection": "database.ssl",
    "driver.sslCertLocation": "database.ssl.certificate",
}
"""Names that mean the same as a used property: a connector's, its older versions', the JDBC driver's."""

NO_KAFKA = "There is no Kafka between source and target"
NO_PROCESS = "No connector process runs: a tick is planned, applied and committed, and Airflow retries it"
DELTA_TYPES = "Delta has types of its own for dates, timestamps, decimals and bytes; values are kept exactly"
CONSISTENT = "Snapshots read committed rows without locks and are made consistent from the change tables"
SPARK_READS = "Spark's readers choose it"

IGNORED = (
    *_ignored("This provider stands in for the connector", "connector.class", "tasks.max"),
    *_ignored(
        NO_KAFKA,
        "bootstrap.servers",
        "schema.history.internal",
        "schema.history.internal.*",
        "database.history",
        "database.history.*",
        "producer.*",
        "consumer.*",
        "admin.*",
        "key.converter",
        "key.converter.*",
        "value.converter",
        "value.converter.*",
        "header.converter",
        "header.converter.*",
        "topic.creation.*",
        "topic.naming.strategy",
        "topic.delimiter",
        "topic.cache.size",
        "topic.transaction",
        "topic.heartbeat.prefix",
        "transaction.topic",
        "heartbeat.interval.ms",
        "heartbeat.topics.prefix",
        "heartbeat.action.query",
        "include.schema.changes",
        "include.schema.comments",
        "schema.name.adjustment.mode",
        "field.name.adjustment.mode",
        "sanitize.field.names",
        "extended.headers.enabled",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
        "column.propagate.source.type",
        "datatype.propagate.source.type",
    ),
    *_ignored(
        NO_PROCESS,
        "poll.interval.ms",
        "max.batch.size",
        "max.queue.size",
        "max.queue.size.in.bytes",
        "errors.*",
        "retriable.restart.connector.wait.ms",
        "restart.on.failure",
        "snapshot.delay.ms",
        "streaming.delay.ms",
        "connection.validation.timeout.ms",
        "executor.shutdown.timeout.ms",
        "custom.metric.tags",
        "openlineage.integration.*",
        "internal.*",
    ),
    *_ignored(DELTA_TYPES, "time.precision.mode", "decimal.handling.mode", "binary.handling.mode"),
    *_ignored(
        CONSISTENT,
        "snapshot.locking.mode",
        "snapshot.locking.mode.custom.name",
        "snapshot.query.mode",
        "snapshot.lock.timeout.ms",
        "read.only",
        "signal.poll.interval.ms",
    ),
    *_ignored(
        SPARK_READS,
        "database.query.timeout.ms",
        "snapshot.max.threads.multiplier",
        "snapshot.max.threads.multiplier.*",
        "legacy.snapshot.max.threads",
        "snapshot.tables.order.by.row.count",
    ),
    *_ignored(
        "Columns are read from the catalog by every tick; there is no schema history to be lost",
        "snapshot.mode.configuration.based.snapshot.schema",
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
    ),
    *_ignored("Each registration names its own change table", "cdc.change.tables.schema"),
)

NO_TRANSFORM = "it changes the events' values or leaves some out, and nothing here does that yet"

REFUSED = (
    _refused("db2.platform", "only Db2 for Linux, UNIX and Windows is supported yet", "luw"),
    _refused("schema.include.list", "the connector for Db2 has no such list: write table.include.list: 'SALES\\..*'"),
    _refused("schema.exclude.list", "the connector for Db2 has no such list: write table.exclude.list: 'SALES\\..*'"),
    _refused("transforms", f"a transform is Kafka Connect's: {NO_TRANSFORM}", ""),
    _refused("transforms.*", f"a transform is Kafka Connect's: {NO_TRANSFORM}"),
    _refused("predicates", f"a predicate is Kafka Connect's: {NO_TRANSFORM}", ""),
    _refused("predicates.*", f"a predicate is Kafka Connect's: {NO_TRANSFORM}"),
    _refused("converters", NO_TRANSFORM, ""),
    _refused("post.processors", NO_TRANSFORM, ""),
    _refused("column.mask.*", NO_TRANSFORM),
    _refused("column.truncate.*", NO_TRANSFORM),
    _refused("skipped.operations", NO_TRANSFORM, "t", "none", ""),
    _refused("skip.messages.without.change", NO_TRANSFORM, "false"),
    _refused("event.processing.failure.handling.mode", "a change is never left out", "fail"),
    _refused("message.key.columns", "the key is the table's primary key", ""),
    _refused("provide.transaction.metadata", "every event has its commit's LSN, but no transaction block yet", "false"),
    _refused("signal.*", "there is no such setting of signals"),
    _refused("incremental.snapshot.allow.schema.changes", "the connector for Db2 has no such setting", "false"),
    _refused("notification.*", "there is no such channel of notifications"),
    _refused("guardrail.*", "there is no limit on the number of tables"),
    _refused("update.capture.table.prune.*", "change tables are never pruned from here"),
)

PROPERTIES = {item.name: item for item in (*USED, *IGNORED, *REFUSED)}


def find_property(name: str) -> Property | None:
    """Return the property of that dotted or snake_case name, None when there is none."""
    for spelling in (name, name.replace("_", ".")):
        spelling = ALIASES.get(spelling, spelling)
        if spelling in PROPERTIES and not spelling.endswith("*"):
            return PROPERTIES[spelling]
        for prefix, item in PROPERTIES.items():
            if prefix.endswith("*") and spelling.startswith(prefix[:-1]):
                return item
    return None


def nearest_names(name: str) -> list[str]:
    """Return the used names that `name` may have been meant to be, the likeliest first."""
    names = [item.name for item in USED] + list(ALIASES)
    return get_close_matches(name.replace("_", "."), names, n=3, cutoff=0.6)
