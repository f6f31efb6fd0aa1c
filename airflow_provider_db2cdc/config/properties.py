"""Every property that a configuration may name, as data: those of Debezium's Db2 connector, and our own.

A property is used, ignored or refused. It is ignored if it has no meaning without Kafka or a running connector. The
reason is then reported. It is refused if it would change what is delivered and is not supported yet. A refused property
is accepted with a value that asks for the normal behaviour (`accepts`). Transforms are sorted by what they do
(transform.py).
"""

from __future__ import annotations

from difflib import get_close_matches

from airflow_provider_db2cdc.config.debezium_properties import IGNORED, REFUSED, TRANSFORMS
from airflow_provider_db2cdc.config.job_properties import JOB_PROPERTIES
from airflow_provider_db2cdc.config.property import Property, used

USED = (
    used(
        "pipeline",
        "pipeline",
        "Name of the pipeline: letters, digits, '.', '_' and '-'.",
        "`name`, or the task group's `group_id`",
    ),
    used(
        "target",
        "target",
        "Place of the Delta tables. Without '/' and ':' it names a schema of the catalog (`main.sales`).",
        form="path",
    ),
    used("target.deletion.vectors", "deletion_vectors", "Whether states have deletion vectors.", "true for new tables"),
    used(
        "target.shared.mount",
        "shared_mount",
        "Whether a target that is a local path is a mount that Spark's driver and all executors share. On a cluster "
        "such a target is refused otherwise.",
        "false",
    ),
    used("topic.prefix", "server_name", "Name of the source: `source.name` of every event.", "the pipeline's name"),
    used("cdc.control.schema", "asn_schema", "Schema of the capture agent's control tables.", "ASNCDC"),
    used(
        "table.include.list",
        "selection.table_include",
        "Patterns of the tables to carry, on `schema.table`.",
        "all tables",
        "list",
    ),
    used(
        "table.exclude.list",
        "selection.table_exclude",
        "Patterns of the tables to exclude. Give this list or `table.include.list`, not both.",
        form="list",
    ),
    used(
        "column.include.list",
        "selection.column_include",
        "Patterns of the columns to carry, on `schema.table.column`.",
        "all columns",
        "list",
    ),
    used(
        "column.exclude.list",
        "selection.column_exclude",
        "Patterns of the columns to exclude. Give this list or `column.include.list`, not both.",
        form="list",
    ),
    used(
        "message.key.columns",
        "selection.message_key",
        "Columns to use as a table's key: `<pattern of schema.table>:<column>,<column>;...`. They replace the table's "
        "own key. Their values must be unique in the table. Two nulls count as equal.",
        "the primary key, else a unique index",
    ),
    used(
        "snapshot.mode",
        "snapshot_mode",
        "When a table is snapshotted: `initial`, `always`, `initial_only`, `no_data`, `recovery`, `when_needed`, "
        "`configuration_based`, `custom`. Older names: `schema_only` for `no_data`, `schema_only_recovery` for "
        "`recovery`.",
        "initial",
    ),
    used(
        "snapshot.mode.configuration.based.snapshot.data",
        "snapshot_data",
        "Whether new tables are snapshotted.",
        "false",
    ),
    used("snapshot.mode.configuration.based.start.stream", "snapshot_stream", "Whether changes are read.", "false"),
    used(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        "snapshot_on_data_error",
        "Whether a table whose changes were lost is snapshotted again.",
        "false",
    ),
    used("snapshot.mode.custom.name", "snapshot_custom", "Your class for `custom`, as `module:Class`."),
    used("snapshot.on.gap", "gap_repair", "How a mode that repairs gaps does it: `snapshot`, `heal`.", "snapshot"),
    used(
        "snapshot.include.collection.list",
        "snapshot_include",
        "Patterns of the tables that start with a snapshot. The others start without one.",
        "all tables",
        "list",
    ),
    used(
        "snapshot.select.statement.overrides",
        "snapshot_overridden",
        "Tables whose initial snapshot reads a SELECT of your own.",
        form="list",
    ),
    used(
        "snapshot.select.statement.overrides.*",
        "snapshot_overrides",
        "That SELECT. The property's name ends with the table: `...overrides.SALES.ORDERS`.",
    ),
    used(
        "snapshot.isolation.mode",
        "snapshot_isolation",
        "Isolation of a snapshot's reads: `read_committed` (CS), `repeatable_read` (RS) or `exclusive` (RR). All of "
        "them read committed rows only.",
        "read_committed",
    ),
    used("snapshot.fetch.size", "snapshot_fetch_rows", "Rows per fetch of the driver, in a snapshot.", "10000"),
    used("query.fetch.size", "query_fetch_rows", "Rows per fetch of the driver, in a change table.", "10000"),
    used("tombstones.on.delete", "tombstones", "Whether a tombstone follows each delete event.", "true"),
    used(
        "key.change.detection",
        "key_change_detection",
        "`adjacent`: if an insert directly follows a delete in one commit, each names the other's key, as in Debezium. "
        "`none`: no event names another key.",
        "adjacent",
    ),
    used("incremental.snapshot.chunk.size", "snapshot_chunk_rows", "Rows in one chunk of a snapshot.", "200000"),
    used(
        "snapshot.chunk.bytes",
        "snapshot_chunk_bytes",
        "Size of one chunk in bytes, instead of its rows. The average length of the table's first 1000 rows counts.",
    ),
    used(
        "snapshot.group.chunks",
        "snapshot_group_chunks",
        "Chunks that are read and published together. By default a group holds what is read in about a minute. A "
        "group has at least 800000 rows (4 to 160 chunks). Reading these shows how many more fit.",
    ),
    used(
        "snapshot.budget.s",
        "snapshot_budget_s",
        "Seconds per tick that are spent on snapshots. After that no new chunk group starts. The next tick continues.",
        "900",
    ),
    used(
        "incremental.snapshot.watermarking.strategy",
        "watermarking",
        "How a snapshot sees that capture has passed its read. `read_only` compares the source's clock. "
        "`insert_insert` and `insert_delete` write rows into the captured signal table.",
        "read_only",
    ),
    used("signal.data.collection", "signal_table", "The signal table, as `schema.table`."),
    used(
        "signal.enabled.channels",
        "signal_channels",
        "Where signals come from: `source` (the signal table), `airflow`, `file`, `kafka`, or your class as "
        "`module:Class`.",
        "source, airflow",
        "list",
    ),
    used(
        "notification.enabled.channels",
        "notification_channels",
        "Where notifications go: `delta` (the journal in the target, always), `log`, `airflow`, or your class as "
        "`module:Class`.",
        "delta, log",
        "list",
    ),
    used("signal.file", "signal_file", "The signal file, with one JSON object per line.", form="path"),
    used("signal.kafka.topic", "kafka_topic", "The topic that signals are read from.", "<topic.prefix>-signal"),
    used("signal.kafka.bootstrap.servers", "kafka_bootstrap_servers", "Kafka's brokers."),
    used("signal.kafka.groupId", "kafka_group_id", "The consumer group of the signal topic.", "<topic.prefix>-signal"),
    used(
        "signal.kafka.outcomes.topic",
        "kafka_outcomes_topic",
        "A topic for the outcomes of signals. Without it, they are in the log and in `db2cdc status`.",
    ),
    used("signal.consumer.*", "kafka_consumer", "Properties of the Kafka client for signals, by librdkafka's names."),
    used(
        "snapshot.max.threads",
        "parallel_reads",
        "JDBC readers that work in parallel on one table, on its changes or on a snapshot's chunks.",
        "8",
    ),
    used("parallel.tables", "parallel_tables", "Tables that are applied in parallel.", "4"),
    used("rows.per.read", "rows_per_read", "Change rows per JDBC reader. More rows open another reader.", "50000"),
    used("high.mark.timeout.s", "high_mark_timeout_s", "Seconds that a snapshot waits for capture, each time.", "600"),
    used(
        "max.rows.per.batch",
        "max_rows_per_batch",
        "Change rows of one table per tick. A commit is never cut, nor is an interval (`end.at`).",
        "1000000",
    ),
    used(
        "end.at",
        "end_at",
        "Where a tick's changes end: `fence` is the capture position, `interval` the end of the run's data interval. "
        "With `interval`, a run without a data interval only carries snapshots.",
        "fence",
    ),
    used("tick.repeat.s", "repeat_s", "Seconds in which a run does tick after tick in one Spark application.", "0"),
    used(
        "database.time.zone",
        "time_zone",
        "Time zone of the source's clock, as an IANA name such as `Europe/Berlin`. It turns the times of commits into "
        "UTC, also of the hour that the end of summer time repeats.",
        "what Db2's CURRENT TIMEZONE reports at each plan",
    ),
    used(
        "capture.stale.after.s", "capture_stale_after_s", "Seconds after which capture's position is an error.", "900"
    ),
    used(
        "offsets.max.age.s",
        "offsets_max_age_s",
        "Seconds after which a tick moves the offsets of an idle pipeline. It must be less than the retention of "
        "the change tables, or pruning overtakes the offsets.",
        "86400",
    ),
    used(
        "accept.update.rows",
        "accept_update_rows",
        "Whether to carry tables whose updates are captured without a before image. A change of their keys is not "
        "seen.",
        "false",
    ),
    used(
        "offsets.file",
        "offsets_file",
        "File of the command line's offsets. It is required if the target is not a local folder. Airflow uses "
        "Variables.",
        "<target>/_db2cdc/offsets.json",
        "path",
    ),
    used("database.hostname", "database.hostname", "Host of Db2. In Airflow the connection has it."),
    used("database.port", "database.port", "Port of Db2.", "50000"),
    used("database.dbname", "database.dbname", "Name of the database."),
    used("database.user", "database.user", "User that reads Db2.", "$DB2CDC_USER"),
    used("database.password", "database.password", "Password of that user.", "$DB2CDC_PASSWORD"),
    used("database.ssl", "database.ssl", "Whether to connect by TLS.", "false"),
    used("database.ssl.certificate", "database.ssl_certificate", "PEM file with the server's certificate.", "", "path"),
    used("database.options", "database.options", "Keywords of Db2's CLI driver, each with its value.", form="mapping"),
    used("driver.*", "database.jdbc_options", "Properties of Db2's JDBC driver, for Spark."),
    *JOB_PROPERTIES,
)

ALIASES = {
    "name": "pipeline",
    "database.server.name": "topic.prefix",
    "database.cdcschema": "cdc.control.schema",
    "database.cdc.schema": "cdc.control.schema",
    "driver.sslConnection": "database.ssl",
    "driver.sslCertLocation": "database.ssl.certificate",
}
"""Other names of used properties: from the connector, from its older versions, and from the JDBC driver."""

REPLACED = {"name": "pipeline", "database.server.name": "topic.prefix"}
"""Aliases that do not count if the property itself is given, even with another value."""

PROPERTIES = {item.name: item for item in (*USED, *IGNORED, *REFUSED, *TRANSFORMS)}

OF_THE_CONNECTION = "In Airflow the drivers' options are extras of the connection."


def find_property(name: str) -> Property | None:
    """Return the property of a dotted or snake_case name, or None if there is none."""
    for spelling in (name, name.replace("_", ".")):
        spelling = ALIASES.get(spelling, spelling)
        if spelling in PROPERTIES and not spelling.endswith("*"):
            return PROPERTIES[spelling]
        for prefix, item in PROPERTIES.items():
            if prefix.endswith("*") and spelling.startswith(prefix[:-1]):
                return item
    return None


def is_driver_option(name: str) -> bool:
    """Whether a property is an option of one of Db2's drivers."""
    item = find_property(name)
    return item is not None and item.field in ("database.options", "database.jdbc_options")


def is_address(name: str) -> bool:
    """Whether a property belongs to the address of Db2 or the login. Airflow has a connection for those."""
    item = find_property(name)
    return item is not None and item.field.startswith("database.")


def nearest_names(name: str) -> list[str]:
    """Return the used names that are similar to `name`, the most similar first, or else a known name."""
    spelling = name.replace("_", ".")
    names = [item.name for item in USED] + list(ALIASES)
    near = get_close_matches(spelling, names, n=3, cutoff=0.6)
    return near or get_close_matches(spelling, PROPERTIES, n=1, cutoff=0.8)
