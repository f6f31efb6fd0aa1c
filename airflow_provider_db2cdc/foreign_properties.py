"""The connector's properties that are not used here: ignored, each with the reason, or refused."""

from __future__ import annotations

from airflow_provider_db2cdc.property import ignored, refused

NO_KAFKA = "There is no Kafka between source and target"
NO_PROCESS = "No connector process runs: a tick is planned, applied and committed, and Airflow retries it"
DELTA_TYPES = "Delta has types of its own for dates, timestamps, decimals and bytes; values are kept exactly"
CONSISTENT = "Snapshots read committed rows without locks and are made consistent from the change tables"
SPARK_READS = "Spark's readers choose it"

IGNORED = (
    *ignored("This provider stands in for the connector", "connector.class", "tasks.max"),
    *ignored(
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
        "topic.heartbeat.name",
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
    *ignored(
        NO_PROCESS,
        "poll.interval.ms",
        "poll.dispatch.interval.ms",
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
        "statistics.metrics.enabled",
        "openlineage.integration.*",
        "internal.*",
    ),
    *ignored(DELTA_TYPES, "time.precision.mode", "decimal.handling.mode", "binary.handling.mode"),
    *ignored(
        CONSISTENT,
        "snapshot.locking.mode",
        "snapshot.locking.mode.custom.name",
        "snapshot.lock.timeout.ms",
        "read.only",
        "signal.poll.interval.ms",
    ),
    *ignored(
        SPARK_READS,
        "database.query.timeout.ms",
        "snapshot.max.threads.multiplier",
        "snapshot.max.threads.multiplier.*",
        "legacy.snapshot.max.threads",
        "snapshot.tables.order.by.row.count",
    ),
    *ignored(
        "Columns are read from the catalog by every tick; there is no schema history to be lost",
        "snapshot.mode.configuration.based.snapshot.schema",
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
    ),
    *ignored("Each registration names its own change table", "cdc.change.tables.schema"),
    *ignored("A tick's changes are bounded by rows, with max.rows.per.batch", "streaming.query.timespan.seconds"),
    *ignored("It is of Db2 for z/OS alone", "z.stop.lsn.ignore"),
    *ignored(
        "It masks secrets in what a connector shows of itself; keep them in Airflow's connection or the environment",
        "custom.sanitize.pattern",
    ),
)

NO_TRANSFORM = "it changes the events' values or leaves some out, and nothing here does that yet"
NO_QUERY = "a query of one's own is a Java class: give a table's select with snapshot.select.statement.overrides"

REFUSED = (
    refused("db2.platform", "only Db2 for Linux, UNIX and Windows is supported yet", "luw"),
    refused("schema.include.list", "the connector for Db2 has no such list: write table.include.list: 'SALES\\..*'"),
    refused("schema.exclude.list", "the connector for Db2 has no such list: write table.exclude.list: 'SALES\\..*'"),
    refused("transforms", f"a transform is Kafka Connect's: {NO_TRANSFORM}", ""),
    refused("transforms.*", f"a transform is Kafka Connect's: {NO_TRANSFORM}"),
    refused("predicates", f"a predicate is Kafka Connect's: {NO_TRANSFORM}", ""),
    refused("predicates.*", f"a predicate is Kafka Connect's: {NO_TRANSFORM}"),
    refused("converters", NO_TRANSFORM, ""),
    refused("post.processors", NO_TRANSFORM, ""),
    refused("column.mask.*", NO_TRANSFORM),
    refused("column.truncate.*", NO_TRANSFORM),
    refused("snapshot.query.mode", NO_QUERY, "select_all", ""),
    refused("snapshot.query.mode.custom.name", NO_QUERY, ""),
    refused("skipped.operations", NO_TRANSFORM, "t", "none", ""),
    refused("skip.messages.without.change", NO_TRANSFORM, "false"),
    refused("event.processing.failure.handling.mode", "a change is never left out", "fail"),
    refused("provide.transaction.metadata", "every event has its commit's LSN, but no transaction block yet", "false"),
    refused("signal.*", "there is no such setting of signals"),
    refused("incremental.snapshot.allow.schema.changes", "the connector for Db2 has no such setting", "false"),
    refused("notification.*", "there is no such channel of notifications"),
    refused("guardrail.*", "there is no limit on the number of tables"),
    refused("update.capture.table.prune.*", "change tables are never pruned from here"),
)
