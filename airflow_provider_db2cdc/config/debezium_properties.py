"""The connector's properties that are not used: ignored or refused ones, each with the reason, and transforms."""

from __future__ import annotations

from airflow_provider_db2cdc.config.property import Property, ignored, refused

NO_KAFKA = "There is no Kafka between source and target"
NO_PROCESS = "No connector process runs: a tick is planned, applied and committed, and Airflow retries it"
DELTA_TYPES = "Delta has its own types for dates, timestamps, decimals and bytes; values are kept exactly"
CONSISTENT = "Snapshots read committed rows without locks and are made consistent from the change tables"
SPARK_READS = "Spark's readers decide it"

IGNORED = (
    *ignored("This provider stands in for the connector", "connector.class", "tasks.max", "tasks", "type", "spec.*"),
    *ignored(
        NO_KAFKA,
        "bootstrap.servers",
        "schema.history.internal",
        "schema.history.internal.*",
        "database.history",
        "database.history.*",
        "debezium.sink.*",
        "debezium.format.*",
        "quarkus.*",
        "plugin.path",
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
        "transaction.metadata.factory",
        "sourceinfo.struct.maker",
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
        "advanced.metrics.enable",
        "offset.activity.monitor.interval.ms",
        "config.action.reload",
        "offset.storage",
        "offset.storage.*",
        "offset.flush.interval.ms",
        "offset.flush.timeout.ms",
        "signal.kafka.poll.timeout.ms",
        "signal.emit.failure.max.retries",
        "signal.emit.failure.backoff.ms",
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
        "snapshot.scan.all.columns.force",
    ),
    *ignored(
        "Columns are read from the catalog by every tick; there is no schema history to be lost",
        "snapshot.mode.configuration.based.snapshot.schema",
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
    ),
    *ignored("Each registration names its own change table", "cdc.change.tables.schema"),
    *ignored("max.rows.per.batch limits a tick's changes by rows", "streaming.query.timespan.seconds"),
    *ignored("It concerns Db2 for z/OS only", "z.stop.lsn.ignore"),
    *ignored("It belongs to another connector; snapshot.mode says how a new table starts", "snapshot.new.tables"),
    *ignored("It belongs to another connector; a change always has both images of its row", "capture.mode"),
    *ignored("Every tick checks that the change tables still reach back to its offsets", "log.position.check.enable"),
    *ignored(
        "Only registered tables are captured, and the database's own tables are not registered", "table.ignore.builtin"
    ),
    *ignored(
        "It masks secrets that a connector shows; keep them in Airflow's connection or in the environment",
        "custom.sanitize.pattern",
    ),
)

NO_TRANSFORM = "it changes values or drops events, which is not supported yet"
NO_QUERY = "a custom query is a Java class: give a table's select with snapshot.select.statement.overrides"

RENAMED_LISTS = {
    "table.whitelist": "table.include.list",
    "table.blacklist": "table.exclude.list",
    "column.whitelist": "column.include.list",
    "column.blacklist": "column.exclude.list",
    "schema.whitelist": "table.include.list: 'SALES\\..*'",
    "schema.blacklist": "table.exclude.list: 'SALES\\..*'",
}
"""Lists of older versions. They are refused. If they were ignored, more tables or columns would be carried."""

REFUSED = (
    refused("db2.platform", "only Db2 for Linux, UNIX and Windows is supported", "luw"),
    *(refused(old, f"Debezium renamed it; write {new}") for old, new in RENAMED_LISTS.items()),
    refused("schema.include.list", "the connector for Db2 has no such list: write table.include.list: 'SALES\\..*'"),
    refused("schema.exclude.list", "the connector for Db2 has no such list: write table.exclude.list: 'SALES\\..*'"),
    refused("converters", NO_TRANSFORM, ""),
    refused("post.processors", NO_TRANSFORM, ""),
    refused("column.mask.*", NO_TRANSFORM),
    refused("column.truncate.*", NO_TRANSFORM),
    refused("snapshot.query.mode", NO_QUERY, "select_all", ""),
    refused("snapshot.query.mode.custom.name", NO_QUERY, ""),
    refused("skipped.operations", NO_TRANSFORM, "t", "none", ""),
    refused("skip.messages.without.change", NO_TRANSFORM, "false"),
    refused("event.processing.failure.handling.mode", "a change is never dropped", "fail"),
    refused("event.converting.failure.handling.mode", "a value is never dropped", "fail"),
    refused("provide.transaction.metadata", "every event has its commit's LSN, but no transaction block yet", "false"),
    refused("signal.*", "signals have no such setting"),
    refused("incremental.snapshot.allow.schema.changes", "the connector for Db2 has no such setting", "false"),
    refused("notification.*", "there is no such notification channel"),
    refused("guardrail.collections.max", "there is no limit on the number of tables", "0"),
    refused("guardrail.collections.limit.action", "there is no limit on the number of tables", "warn", "fail"),
    refused("guardrail.*", "there is no limit on the number of tables"),
    refused("update.capture.table.prune.ind", "this provider never prunes change tables", "false"),
    refused("update.capture.table.prune.*", "this provider never prunes change tables"),
)

TRANSFORMS = tuple(
    Property(name, "transform", "Kafka Connect's: see transform.py")
    for name in ("transforms", "transforms.*", "predicates", "predicates.*")
)
