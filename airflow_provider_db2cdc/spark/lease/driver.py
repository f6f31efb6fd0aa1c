"""The end of Spark's driver when it may no longer write. Only the JVM writes, so the JVM ends first."""

from __future__ import annotations

import os
from threading import Thread
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.document import LEASE_LOST
from airflow_provider_db2cdc.tick.log import log_progress

HALT_TIMEOUT_S = 5.0


class SparkDriver:
    """A driver that can be ended, and whose JVM ends itself by a timer of its own.

    The JVM continues a statement while its Python process is stopped, and for a while after that process was killed.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._runtime = jvm.java.lang.Runtime.getRuntime()
        self._halt = _halting(spark, self._runtime)
        self._timer: Any = None

    def end_after(self, seconds: float | None) -> None:
        """Set the JVM's timer, and then drop the earlier one."""
        earlier, self._timer = self._timer, None
        if seconds is not None:
            concurrent = self._jvm.java.util.concurrent
            self._timer = concurrent.ScheduledThreadPoolExecutor(1)
            self._timer.schedule(self._halt, int(seconds * 1000), concurrent.TimeUnit.MILLISECONDS)
        if earlier is not None:
            earlier.shutdownNow()

    def end(self, reason: str) -> None:
        """End the JVM and this process."""
        halting = Thread(target=self._runtime.halt, args=(LEASE_LOST,), daemon=True)
        halting.start()
        log_progress(f"{reason}, so this run ends")
        halting.join(HALT_TIMEOUT_S)
        os._exit(LEASE_LOST)


def _halting(spark: SparkSession, runtime: Any) -> Any:
    """Return a java.lang.Runnable that ends the JVM. Nothing of it is in Python."""
    gateway: Any = spark.sparkContext._gateway
    lang, code = gateway.jvm.java.lang, gateway.new_array(gateway.jvm.java.lang.Object, 1)
    code[0] = LEASE_LOST
    handles, runnable = lang.invoke.MethodHandles, lang.Class.forName("java.lang.Runnable")
    halt_type = lang.invoke.MethodType.methodType(lang.Void.TYPE, lang.Integer.TYPE)
    halt = handles.publicLookup().findVirtual(runtime.getClass(), "halt", halt_type).bindTo(runtime)
    return lang.invoke.MethodHandleProxies.asInterfaceInstance(runnable, handles.insertArguments(halt, 0, code))
