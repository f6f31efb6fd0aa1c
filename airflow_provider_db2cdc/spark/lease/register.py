"""A register in an object store, by the conditional writes of Hadoop's S3A.

S3A has them since Hadoop 3.4.2. Delta 4.4.0 does not use them for its commits.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.tick.lease.lease import RegisterContent

IF_ABSENT, IF_TAG = "fs.option.create.conditional.overwrite", "fs.option.create.conditional.overwrite.etag"
MISSING = "java.io.FileNotFoundException"
CONFLICTS = ("RemoteFileChangedException", "FileAlreadyExistsException", "FileNotFoundException")
CONFLICT_CODES = ("Status Code: 409", "Status Code: 412")
UNSUPPORTED = ("IllegalArgumentException", "UnsupportedOperationException", "Conditional Writes Unavailable")


class StoreRegister:
    """A register at one path of a store that Hadoop reaches."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    def read(self) -> RegisterContent | None:
        """Return what it holds. A text that is newer than its tag does no harm: a swap by that tag fails."""
        try:
            status = self._files.getFileStatus(self._path)
            text = self._text()
        except Py4JJavaError as error:
            if _kind(error) == MISSING:
                return None
            raise
        try:
            return RegisterContent(str(status.getEtag()), text)
        except Py4JError as error:
            raise _unsupported(self._files) from error

    def swap(self, tag: str | None, text: str) -> str | None:
        """Write under a condition. What the object then holds says whether that succeeded."""
        failure: Py4JJavaError | None = None
        try:
            self._write(tag, text)
        except Py4JJavaError as error:
            # A retry of S3A meets its own first write, whose answer was lost. That is a success.
            failure = error
        found = self.read()
        if found is not None and found.text == text:
            return found.tag
        if failure is None or _is_conflict(failure):
            return None
        raise failure

    def _write(self, tag: str | None, text: str) -> None:
        try:
            builder = self._files.createFile(self._path).recursive().overwrite(tag is not None)
            stream = (builder.must(IF_ABSENT, True) if tag is None else builder.must(IF_TAG, tag)).build()
        except Py4JJavaError as error:
            if any(name in str(error.java_exception) for name in UNSUPPORTED):
                raise _unsupported(self._files) from error
            raise
        stream.write(text.encode())
        stream.close()

    def _text(self) -> str:
        stream = self._files.open(self._path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


def _unsupported(files: Any) -> ConfigurationError:
    return ConfigurationError(
        f"{files.getClass().getSimpleName()} has no conditional writes here, which the lease of a target on S3 needs",
        "Use hadoop-aws 3.4.2 or newer (Spark 4.1) with fs.s3a.create.conditional.enabled=true, or set "
        "spark.delta.logStore.<scheme>.impl to a LogStore for several drivers.",
    )


def _kind(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def _is_conflict(error: Py4JJavaError) -> bool:
    text = str(error.java_exception)
    return _kind(error).endswith(CONFLICTS) or any(code in text for code in CONFLICT_CODES)
