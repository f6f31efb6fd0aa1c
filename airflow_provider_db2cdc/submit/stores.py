"""The clients of object stores that can be fetched, and what to name for the others."""

from __future__ import annotations

import re
from typing import Literal

from airflow_provider_db2cdc.errors import ConfigurationError

Store = Literal["s3"]
STORES: tuple[Store, ...] = ("s3",)
"""A job gets the client of each of these stores that its folder of jars has."""

HADOOP_VERSION, AWS_VERSION = "3.5.0", "2.35.4"
"""Spark's own Hadoop, and the AWS SDK of its S3A."""

S3 = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    f"software.amazon.awssdk:s3-transfer-manager:{AWS_VERSION}",
    f"software.amazon.awssdk:sts:{AWS_VERSION}",
)
"""S3A with the modules of the SDK that it uses: 13 MB. The bundle that it names has all modules, 686 MB."""

STORE_LIBRARY = re.compile(r"hadoop-aws(-\d|$)")


def store_part(store: str) -> Store:
    """Return the part of the jars with the client of a store.

    :raises ConfigurationError: when no jars were tested for this store.
    """
    for part in STORES:
        if part == store:
            return part
    raise ConfigurationError(
        f"no jars were tested for the store {store!r}, only for {', '.join(STORES)}",
        f"Name coordinates in spark.packages. Azure: org.apache.hadoop:hadoop-azure:{HADOOP_VERSION}. Google: its "
        "Cloud Storage connector for Hadoop 3. docs/how-to/object-store.md has the settings.",
    )
