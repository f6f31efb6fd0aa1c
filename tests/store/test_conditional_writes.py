"""What the lease rests on: S3A's conditional writes; and why it is needed: Delta does not use them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.object_store import BUCKET
from support.stored import StoredPipeline

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(900)]

TESTS = Path(__file__).parents[1]
CONTRACT = f"""
import sys
from pyspark.sql import SparkSession

sys.path.insert(0, {str(TESTS)!r})
from airflow_provider_db2cdc.spark.lease.register import StoreRegister
from support.register_contract import check_register

check_register(StoreRegister(SparkSession.builder.getOrCreate(), "s3a://{BUCKET}/contract/some.lease"))
print("IT HOLDS")
"""
APPEND = f"""
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range({{first}}, {{first}} + 10).coalesce(1).write.format("delta").mode("append").save("s3a://{BUCKET}/plain")
"""
COUNT = f"""
from pyspark.sql import SparkSession

print("ROWS", SparkSession.builder.getOrCreate().read.format("delta").load("s3a://{BUCKET}/plain").count())
"""


def test_the_register_on_s3_keeps_the_contract(new_stored: Callable[..., StoredPipeline]) -> None:
    assert "IT HOLDS" in new_stored().python(CONTRACT)


def test_delta_without_a_lease_loses_a_commit_when_two_drivers_meet(new_stored: Callable[..., StoredPipeline]) -> None:
    """Once this fails, Delta commits by conditional writes, and the lease can go."""
    first, second = new_stored(), new_stored()
    first.python(APPEND.format(first=0))
    with ThreadPoolExecutor() as pool, first.store.holding("PUT", "/plain/_delta_log/0+1.json$"):
        held = pool.submit(first.python, APPEND.format(first=10))
        first.store.await_held()
        second.python(APPEND.format(first=20))
        first.store.release()
        held.result()
    assert "ROWS 20" in first.python(COUNT), "all three appends are there: 30 rows"
