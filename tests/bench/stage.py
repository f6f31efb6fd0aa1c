"""What a measurement needs: a sandbox, a Spark session like a job's, and tables of a size."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from support.pipeline import Pipeline
from support.shapes import Shape, fill

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.sandbox.server.state import SandboxOptions
from airflow_provider_db2cdc.submit.command import spark_conf

ROOT = Path(__file__).parents[2]


TWELVE = Shape(
    "ID INTEGER NOT NULL PRIMARY KEY, C1 VARCHAR(20), C2 VARCHAR(40), C3 DECIMAL(12,2), C4 INTEGER, C5 BIGINT, "
    "C6 DOUBLE, C7 DATE, C8 TIMESTAMP, C9 CHAR(8), C10 SMALLINT, C11 VARCHAR(30)",
    "VALUES (0, 'name', 'a street and a number', 12.50, 7, 99999999999, 1.5, "
    "CURRENT_DATE, CURRENT_TIMESTAMP, 'code', 3, 'x')",
    "C1, C2, C3 + {n}, C4, C5 + ID, C6, C7, C8, C9, C10, C11",
    "C4 = C4 + 1",
)


@dataclass
class Stage:
    """A running sandbox and session; `bare` is one as it was submitted, for ours sets the first one for few rows."""

    folder: Path
    sandbox: Sandbox
    spark: SparkSession
    bare: SparkSession
    pipelines: int = 0

    @classmethod
    @contextmanager
    def open(cls, folder: Path, commit_interval_s: float = 1.0) -> Iterator[Stage]:
        """Start both, and stop them at the end; the source's capture commits that often."""
        jars = sorted((ROOT / "build" / "jars" / "spark").glob("*.jar"))
        os.environ["PYSPARK_PYTHON"] = sys.executable
        extra = {"spark.driver.memory": "1g", "spark.driver.host": "127.0.0.1"}
        builder = SparkSession.builder.master("local[2]").appName("bench")
        for key, value in spark_conf(jars, extra=extra).items():
            builder = builder.config(key, value)
        derby = str(ROOT / "build" / "jars" / "sandbox")
        options = SandboxOptions(commit_interval_s=commit_interval_s, jars=derby, java_options="-Xmx2g")
        with Sandbox.start(folder / "sandbox", options) as sandbox:
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
            yield cls(folder, sandbox, spark, spark.newSession())
            spark.stop()

    def pipeline(self) -> Pipeline:
        """Return a pipeline with a schema and a target of its own."""
        self.pipelines += 1
        folder = self.folder / f"pipeline{self.pipelines}"
        folder.mkdir()
        return Pipeline(self.sandbox, self.spark, folder)

    def big_table(self, pipeline: Pipeline, rows: int) -> TableId:
        """Return a registered table of twelve columns; it is filled before anything is captured."""
        return self.table(pipeline, "BIG", rows)

    def table(self, pipeline: Pipeline, name: str, rows: int) -> TableId:
        """Return a registered table of twelve columns; it is filled before anything is captured, by doubling."""
        return fill(pipeline, name, rows, TWELVE)

    def change(self, pipeline: Pipeline, changes: int, rows: int, round_: int) -> None:
        """Commit `changes` changes in small transactions: half updates, a quarter deletes, a quarter inserts."""
        name = f'"{pipeline.schema}"."BIG"'
        quarter = changes // 4
        step = 1000 if quarter % 1000 == 0 else quarter
        start = round_ * quarter
        for at in range(0, 2 * quarter, step):
            low = (start * 2 + at * 7) % max(1, rows - step)
            pipeline.execute(f"UPDATE {name} SET C4 = C4 + 1, C1 = 'u{round_}' WHERE ID >= {low} AND ID < {low + step}")
            pipeline.writer.commit()
        for at in range(0, quarter, step):
            low = rows - start - at
            pipeline.execute(f"DELETE FROM {name} WHERE ID < {low} AND ID >= {low - step}")
            base = rows * 2 + start + at
            columns = TWELVE.further.format(n=1)
            pipeline.execute(f"INSERT INTO {name} SELECT ID + {base}, {columns} FROM {name} WHERE ID < {step}")
            pipeline.writer.commit()
