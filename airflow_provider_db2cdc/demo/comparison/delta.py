"""Reads Delta tables in Spark and writes their contents as JSON. spark-submit runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.demo.comparison.rows import portable

OWN = "__"
"""What the names of the provider's own columns begin with."""


def main(request: str) -> None:
    """Read the tables that a request names, `{table: {"state": path, "changes": path}}`, into the file `into`."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("compare").getOrCreate()
    wanted = json.loads(Path(request).read_text(encoding="utf-8"))
    contents = {name: _content(spark, places) for name, places in wanted["tables"].items()}
    Path(wanted["into"]).write_text(json.dumps(contents), encoding="utf-8")
    spark.stop()


def _content(spark: Any, places: dict[str, str]) -> dict[str, Any]:
    frame = spark.read.format("delta").load(places["state"])
    columns = [name for name in frame.columns if not name.startswith(OWN)]
    rows = [[portable(value) for value in row] for row in frame.select(*(f"`{name}`" for name in columns)).collect()]
    events = spark.read.format("delta").load(places["changes"]).where("op IS NOT NULL")
    counts = {row[0]: row[1] for row in events.groupBy("op").count().collect()}
    history = spark.sql(f"DESCRIBE HISTORY delta.`{places['state']}` LIMIT 1")
    return {"columns": columns, "rows": rows, "events": counts, "version": history.select("version").first()[0]}


if __name__ == "__main__":
    main(sys.argv[1])
