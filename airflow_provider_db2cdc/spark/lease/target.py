"""The lease of a target: it is needed where Delta commits without an atomic write, which is on S3."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.target_reach import scheme_of
from airflow_provider_db2cdc.spark.lease.driver import SparkDriver
from airflow_provider_db2cdc.spark.lease.register import StoreRegister
from airflow_provider_db2cdc.spark.target_location import default_fs, target_location
from airflow_provider_db2cdc.tick.lease.keeper import SystemClock, keep_lease
from airflow_provider_db2cdc.tick.lease.lease import Lease, LeaseTimes

S3_SCHEMES = ("s3a", "s3", "s3n")
LOG_STORE = "spark.delta.logStore.class"
DELTAS_OWN = ("S3SingleDriverLogStore", "HDFSLogStore", "AzureLogStore", "GCSLogStore", "LocalLogStore")
"""Delta's LogStores that do not commit atomically on S3. GCSLogStore leaves the check to a file system that has it."""

LeaseName = Literal["tables", "report"]
LEASES: tuple[LeaseName, ...] = ("tables", "report")


def target_lease(
    spark: SparkSession, layout: Layout, run: str, lease: LeaseName = "tables"
) -> AbstractContextManager[None]:
    """Return a block in which no other run writes the target. Where Delta's commits are atomic, it does nothing.

    The report of verifications has a lease of its own, so a verification does not keep ticks waiting.
    """
    location = target_location(spark, layout)
    scheme = scheme_of(location, default_fs(spark))
    if not location or not needs_lease(scheme, dict(spark.sparkContext.getConf().getAll())):
        return nullcontext()
    folder = f"{location.rstrip('/')}/_db2cdc" if layout.is_path else location.rstrip("/")
    register = StoreRegister(spark, f"{folder}/_{lease}.lease")
    holder = f"{run} on {socket.gethostname()}"
    return keep_lease(Lease(register, holder, SystemClock(), LeaseTimes()), SparkDriver(spark))


def needs_lease(scheme: str, conf: Mapping[str, str]) -> bool:
    """Return whether Delta's commits in a store of this scheme can overwrite each other."""
    if scheme not in S3_SCHEMES:
        return False
    store = conf.get(f"spark.delta.logStore.{scheme}.impl") or conf.get(LOG_STORE) or DELTAS_OWN[0]
    return store.rsplit(".", 1)[-1] in DELTAS_OWN
