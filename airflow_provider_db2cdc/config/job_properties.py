"""The properties of Spark and of maintenance, as data."""

from __future__ import annotations

from airflow_provider_db2cdc.config.property import used

JOB_PROPERTIES = (
    used(
        "change.log.retention",
        "change_log_retention",
        "Age from which `db2cdc maintain` trims change logs: a number with `d`, `h` or `w` (`30d`), at least a day.",
        "nothing is trimmed",
    ),
    used(
        "spark.master",
        "spark.master",
        "Master of Spark, for the command line. In Airflow the connection has it.",
        "local[*]",
    ),
    used("spark.jars", "spark.jars", "Folder of jars that `db2cdc jars` has filled.", "", "path"),
    used(
        "spark.packages",
        "spark.packages",
        "Maven coordinates to add. A Delta or a JDBC driver among them replaces the one in the folder.",
        form="list",
    ),
    used("spark.conf", "spark.conf", "Further settings of Spark, each with its value.", form="mapping"),
    used("spark.binary", "spark.binary", "The spark-submit to call.", "the installed pyspark's"),
)
