"""Every property that a pipeline's configuration may name, as data: Debezium's Db2 connector's, and our own.

A property is *used*; or *ignored*, because it has no meaning without Kafka or a running connector (then the reason is
reported); or *refused*, because it would change what is delivered and is not supported yet. A refused property is let
pass with a value that asks for what is done anyway (`accepts`). Transforms are sorted by what they do (transform.py).
"""

from __future__ import annotations

from difflib import get_close_matches

from airflow_provider_db2cdc.foreign_properties import IGNORED, REFUSED, TRANSFORMS
from airflow_provider_db2cdc.property import Property, used

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
        "Where the Delta tables lie: a path, or without '/' and ':' a catalog's schema (`main.sales`).",
        form="path",
    ),
    used("topic.prefix", "server_name", "Name of the source in every event's `source.name`.", "the pipeline's name"),
    used("cdc.control.schema", "asn_schema", "Schema of the capture agent's control tables.", "ASNCDC"),
    used("table.include.list", "selection.table_include", "Patterns of `schema.table` to carry.", "all tables", "list"),
    used(
        "table.exclude.list",
        "selection.table_exclude",
        "Patterns of those to leave out, instead of a list of those to carry.",
        form="list",
    ),
    used(
        "column.include.list", "selection.column_include", "Patterns of `schema.table.column`.", "all columns", "list"
    ),
    used(
        "column.exclude.list",
        "selection.column_exclude",
        "Patterns of those to leave out, instead of a list of those to carry.",
        form="list",
    ),
    used(
        "message.key.columns",
        "selection.message_key",
        "Columns that are the key of tables instead of their own: `<pattern of schema.table>:<column>,<column>;...`. "
        "Their values must be unique in the table; nulls equal each other.",
        "the primary key, else a unique index",
    ),
    used(
        "snapshot.mode",
        "snapshot_mode",
        "`initial`, `always`, `initial_only`, `no_data`, `recovery`, `when_needed`, `configuration_based`, `custom`.",
        "initial",
    ),
    used("snapshot.mode.configuration.based.snapshot.data", "snapshot_data", "Snapshot new tables.", "false"),
    used("snapshot.mode.configuration.based.start.stream", "snapshot_stream", "Pull changes.", "false"),
    used(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        "snapshot_on_data_error",
        "Snapshot a table anew whose changes were lost.",
        "false",
    ),
    used("snapshot.mode.custom.name", "snapshot_custom", "The class of `custom`, as `module:Class`."),
    used(
        "snapshot.include.collection.list",
        "snapshot_include",
        "Patterns of the tables that begin with a snapshot; the others begin without.",
        "all tables",
        "list",
    ),
    used(
        "snapshot.select.statement.overrides", "snapshot_overridden", "Tables with a select of their own.", form="list"
    ),
    used("snapshot.select.statement.overrides.*", "snapshot_overrides", "The select that a snapshot of it reads."),
    used(
        "snapshot.isolation.mode",
        "snapshot_isolation",
        "`read_committed` (CS), `repeatable_read` (RS), `exclusive` (RR); all read committed rows alone.",
        "read_committed",
    ),
    used("snapshot.fetch.size", "snapshot_fetch_rows", "Rows that the driver fetches at once in a snapshot.", "10000"),
    used("query.fetch.size", "query_fetch_rows", "Rows that the driver fetches at once of changes.", "10000"),
    used("tombstones.on.delete", "tombstones", "Whether a delete event is followed by a tombstone.", "true"),
    used(
        "key.change.detection",
        "key_change_detection",
        "`adjacent`: a delete directly before an insert of one commit name each other's key, as in Debezium; `none`.",
        "adjacent",
    ),
    used("incremental.snapshot.chunk.size", "snapshot_chunk_rows", "Rows of one chunk of a snapshot.", "200000"),
    used(
        "snapshot.chunk.bytes",
        "snapshot_chunk_bytes",
        "Bytes of one chunk instead of its rows, by the average of the table's first 1000 rows.",
    ),
    used(
        "snapshot.group.chunks",
        "snapshot_group_chunks",
        "Chunks that are read and published together; if it is not given, as many as are read in about a minute, but "
        "at least as many as make 800000 rows (4 to 160), which tell how many that is.",
    ),
    used(
        "snapshot.budget.s",
        "snapshot_budget_s",
        "A tick's time for snapshots: no group of chunks is begun later but the first, the next tick goes on.",
        "900",
    ),
    used(
        "incremental.snapshot.watermarking.strategy",
        "watermarking",
        "How a snapshot learns that capture has passed its read: `read_only` by the source's clock, `insert_insert` "
        "and `insert_delete` by rows in the captured signal table.",
        "read_only",
    ),
    used("signal.data.collection", "signal_table", "The table of signals, as `schema.table`."),
    used(
        "signal.enabled.channels",
        "signal_channels",
        "Where signals come from: `source` (the signal table), `airflow`, `file`, `kafka`, a class as `module:Class`.",
        "source, airflow",
        "list",
    ),
    used(
        "notification.enabled.channels",
        "notification_channels",
        "Where notifications go: `delta` (the target's journal, always), `log`, `airflow`, a class as `module:Class`.",
        "delta, log",
        "list",
    ),
    used("signal.file", "signal_file", "The file of signals, a JSON object a line.", form="path"),
    used("signal.kafka.topic", "kafka_topic", "The topic of signals.", "<topic.prefix>-signal"),
    used("signal.kafka.bootstrap.servers", "kafka_bootstrap_servers", "Kafka's brokers."),
    used("signal.kafka.groupId", "kafka_group_id", "The group that keeps the offset.", "<topic.prefix>-signal"),
    used(
        "signal.kafka.outcomes.topic",
        "kafka_outcomes_topic",
        "A topic that is told what became of signals; without one they stand in the log and in `db2cdc status`.",
    ),
    used("signal.consumer.*", "kafka_consumer", "Properties of the client of signals."),
    used(
        "snapshot.max.threads",
        "parallel_reads",
        "JDBC readers beside each other for one table, of its changes or of a snapshot's chunks.",
        "8",
    ),
    used("parallel.tables", "parallel_tables", "Tables that are applied beside each other.", "4"),
    used("rows.per.read", "rows_per_read", "Change rows that one JDBC reader takes before another opens.", "50000"),
    used("high.mark.timeout.s", "high_mark_timeout_s", "How long a snapshot waits for capture, each time.", "600"),
    used(
        "max.rows.per.batch", "max_rows_per_batch", "Change rows of one table in a tick, rounded to commits.", "1000000"
    ),
    used("capture.stale.after.s", "capture_stale_after_s", "Age of the capture's position that is an error.", "900"),
    used(
        "offsets.max.age.s",
        "offsets_max_age_s",
        "So long an idle pipeline's offsets stand still; then a tick moves them, before pruning overtakes them.",
        "86400",
    ),
    used(
        "accept.update.rows",
        "accept_update_rows",
        "Carry tables whose updates are captured as the after image alone, though a changed key then goes unseen.",
        "false",
    ),
    used(
        "offsets.file",
        "offsets_file",
        "The command line's offsets; must be given where the target is no local folder. (Airflow has Variables.)",
        "<target>/_db2cdc/offsets.json",
        "path",
    ),
    used("database.hostname", "database.hostname", "Db2's host (command line; Airflow has a connection for it)."),
    used("database.port", "database.port", "Db2's port.", "50000"),
    used("database.dbname", "database.dbname", "The database's name."),
    used("database.user", "database.user", "The user.", "$DB2CDC_USER"),
    used("database.password", "database.password", "The password.", "$DB2CDC_PASSWORD"),
    used("database.ssl", "database.ssl", "Whether to connect by TLS.", "false"),
    used("database.ssl.certificate", "database.ssl_certificate", "PEM file of the server's certificate.", "", "path"),
    used("database.options", "database.options", "Keywords of Db2's CLI driver, name to value.", form="mapping"),
    used("driver.*", "database.jdbc_options", "Properties of Db2's JDBC driver, for Spark."),
    used("spark.master", "spark.master", "Spark's master (command line).", "local[*]"),
    used("spark.jars", "spark.jars", "Folder of jars, as `db2cdc jars` fills it.", "", "path"),
    used(
        "spark.packages",
        "spark.packages",
        "Maven coordinates to add; a Delta or a JDBC driver among them replaces the folder's.",
        form="list",
    ),
    used("spark.conf", "spark.conf", "Further Spark settings, name to value.", form="mapping"),
    used("spark.binary", "spark.binary", "The spark-submit to call.", "the installed pyspark's"),
)

ALIASES = {
    "name": "pipeline",
    "database.server.name": "topic.prefix",
    "database.cdcschema": "cdc.control.schema",
    "database.cdc.schema": "cdc.control.schema",
    "driver.sslConnection": "database.ssl",
    "driver.sslCertLocation": "database.ssl.certificate",
}
"""Names that mean the same as a used property: a connector's, its older versions', the JDBC driver's."""

REPLACED = {"name": "pipeline", "database.server.name": "topic.prefix"}
"""Aliases that do not count where the property itself is given, whatever both say."""

PROPERTIES = {item.name: item for item in (*USED, *IGNORED, *REFUSED, *TRANSFORMS)}

OF_THE_CONNECTION = "In Airflow the drivers' options are extras of the connection."


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


def is_driver_option(name: str) -> bool:
    """Whether a property is an option of one of Db2's drivers."""
    item = find_property(name)
    return item is not None and item.field in ("database.options", "database.jdbc_options")


def is_address(name: str) -> bool:
    """Whether a property says where Db2 is and how to log in, for which Airflow has a connection."""
    item = find_property(name)
    return item is not None and item.field.startswith("database.")


def nearest_names(name: str) -> list[str]:
    """Return the used names that `name` may have been meant to be, the likeliest first, else a known one."""
    spelling = name.replace("_", ".")
    names = [item.name for item in USED] + list(ALIASES)
    near = get_close_matches(spelling, names, n=3, cutoff=0.6)
    return near or get_close_matches(spelling, PROPERTIES, n=1, cutoff=0.8)
