"""Causes of foreign errors: the root cause in one line without row values, and the whole stack in a file."""

from __future__ import annotations

import os
import re
import traceback

from airflow_provider_db2cdc.cdc.document import ERROR_LOG_ENV, PASSWORD_ENV
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, TargetError
from airflow_provider_db2cdc.sql.driver_error import known_error

CLASS = r"(?:[a-z]\w*\.){2,}[A-Z][\w$]*(?:Exception|Error|Failure)"
JAVA_CLASS = re.compile(r"\b(?:[a-z]\w*\.){2,}([A-Z]\w*(?:Exception|Error))\b")
CAUSED_BY = re.compile(rf"^Caused by: ({CLASS})(?:: (.*))?$", re.MULTILINE)
RAISED = re.compile(rf"^(?:.*: )?({CLASS})(?:: (.*))?$", re.MULTILINE)
CONDITION = re.compile(r"(?:Exception|Error): \[([A-Z][A-Z0-9_.]+)\]")
DB2_CODES = re.compile(r"(SQLCODE|ERRORCODE)[=:]\s*(-?\d+).{0,40}?SQLSTATE[=:]\s*(\w{4,5})", re.DOTALL)
JCC_TEXT = re.compile(r"com\.ibm\.db2\.jcc\.[\w.]+: (.{1,1500}?SQLSTATE=\w+(?:, SQLERRMC=[^\n]*?, DRIVER)?)", re.DOTALL)
LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\d+)\)")
"""Spark's text on a task that failed on a cluster. In local mode the executor is `driver`."""

LOST_BLOCK = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""Spark's condition for rows of a local checkpoint whose executor is gone. It does not compute them again."""

OUT_OF_MEMORY = ("OutOfMemoryError", "exited with code 52", "bigger than spark.driver.maxResultSize")
"""Texts of a JVM without free heap. An executor then exits with code 52. The driver may refuse a result in time."""

HARMLESS = (
    "java.io.", "java.net.", "java.nio.", "java.security.", "javax.net.ssl.", "sun.security.",
    "java.util.concurrent.TimeoutException", "java.lang.OutOfMemoryError", "java.lang.StackOverflowError",
    "java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError", "java.lang.NoSuchMethodError",
    "java.lang.UnsatisfiedLinkError", "java.lang.UnsupportedClassVersionError",
    "org.apache.hadoop.", "software.amazon.awssdk.", "com.amazonaws.", "com.azure.", "com.microsoft.azure.",
    "com.google.cloud.",
)  # fmt: skip
"""Error classes whose text names only files, hosts and classes. Texts of Spark, Delta or a parser may quote values."""

DISK_FULL = ("No space left on device", "Disk quota exceeded", "not enough space on the disk")
SECRET = re.compile(r"(?i)\b(password|secret|token|sig|signature|credential|accesskey|key)=[^\s&;,]+|(?<=\w)\?\S+=\S+")
MAX_TEXT = 300


MISSING_STORE = re.compile(
    r"ClassNotFoundException: (?:Class )?(org\.apache\.hadoop\.fs\.\S+|com\.google\.cloud\.hadoop\S+)"
)
"""A class of a file system that Hadoop's configuration names and no jar has."""

REFUSED_LOGIN = ("NoAwsCredentialsException", "NoAuthWithAWSException", "java.nio.file.AccessDeniedException")


def explained(error: BaseException, text: str) -> Db2CdcError | None:
    """Return a foreign error as one of ours with a remedy for the operator, or None if its meaning is unknown."""
    db2_text = JCC_TEXT.search(text)
    executor = "".join(f" ({place})" for place in _executor(text))
    if db2_text and (known := known_error(db2_text[1], f"the source{executor}")):
        return known
    if any(words in text for words in OUT_OF_MEMORY):
        return _memory_error(executor)
    if LOST_BLOCK in text:
        return Db2CdcError(
            "Spark has lost an executor, and with it rows of this batch that no other executor held",
            "The next tick applies the batch. If it happens often, read in the logs of the executors why they end.",
        )
    if any(words in text for words in DISK_FULL):
        return TargetError(
            f"a disk is full ({root_cause(error, text)})",
            "Free space in the target and in Spark's local folders (spark.local.dir, by default /tmp). Then run the "
            "tick again.",
        )
    if store_error := _store_error(text):
        return store_error
    if isinstance(error, PermissionError) or "Permission denied" in text or "AccessControlException" in text:
        return TargetError(
            "the target cannot be written: permission denied", "Grant the Spark job's user write access to it."
        )
    return None


def _memory_error(executor: str) -> Db2CdcError:
    if executor:
        return Db2CdcError(
            f"Spark ran out of memory{executor}",
            "Raise spark.executor.memory in spark.conf, or let fewer tasks share it (spark.executor.cores).",
        )
    return Db2CdcError(
        "Spark's driver ran out of memory", "Raise spark.driver.memory in spark.conf, or lower max.rows.per.batch."
    )


def _store_error(text: str) -> Db2CdcError | None:
    if missing := MISSING_STORE.search(text):
        return ConfigurationError(
            f"Spark has no client for the target's store: the class {missing[1]} is missing",
            "Fetch its jars with `db2cdc jars --with s3`. For another store, name them in spark.packages.",
        )
    if any(words in text for words in REFUSED_LOGIN):
        return TargetError(
            "the target's store refuses the login, or there is none",
            "Give the job credentials by the connection of `store_conn_id`, the environment or the machine's role.",
        )
    if "UnknownStoreException" in text:
        return TargetError("the target's bucket does not exist", "Create it, or correct `target`.")
    return None


def root_cause(error: BaseException, text: str) -> str:
    """Return the innermost cause in one line: its class, its text if that cannot hold a row value, and the executor."""
    if isinstance(error, OSError):
        return _redacted(f"{type(error).__name__}: {error}")
    names = list(dict.fromkeys([type(error).__name__, *JAVA_CLASS.findall(text)]))
    codes = [f"{name} {code} SQLSTATE {state}" for name, code, state in DB2_CODES.findall(text)[:1]]
    innermost = _harmless_cause(text)
    if innermost:
        within = [name for name in names[1:4] if not innermost.startswith(f"{name}:")]
        cause = f"{innermost} (in {' <- '.join(within)})" if within else innermost
    else:
        cause = " <- ".join(names[:4])
    return "; ".join([cause, *codes, *_condition(error, text), *_executor(text)])


def _harmless_cause(text: str) -> str:
    """Return the class and the text of the JVM's innermost cause, or nothing if the text may quote a row value."""
    inner = (CAUSED_BY.findall(text) or RAISED.findall(text))[-1:]
    return "".join(
        _redacted(f"{name.rsplit('.', 1)[-1]}: {message}") for name, message in inner if name.startswith(HARMLESS)
    )


def text_of(error: BaseException | None) -> str:
    """Return the texts of an error and of its causes in Python and the JVM. They may quote row values."""
    texts = []
    while error is not None:
        texts.append(f"{error}\n{getattr(error, '_stackTrace', '')}")
        error = error.__cause__
    return "\n".join(texts)


def keep_stack(title: str, error: BaseException) -> str:
    """Append an error's stack to the run's error log, and return a sentence with the log's path.

    Only the owner of the log can read it. Without an error log the function returns an empty text.
    """
    path = os.environ.get(ERROR_LOG_ENV)
    stack = f"{''.join(traceback.format_exception(error))}\n{getattr(error, '_stackTrace', '')}"
    if not path:
        return ""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{title}\n{_without_password(stack)}\n\n")
    except OSError as error:
        return f" The stack could not be kept in {path}: {error.strerror}."
    return f" The stack is in {path}."


def _executor(text: str) -> list[str]:
    """Return where on a cluster the last task failed that made its stage fail, no item in local mode."""
    return [f"on executor {executor} of {host}" for host, executor in LOST_TASK.findall(text)[-1:]]


def _condition(error: BaseException, text: str) -> list[str]:
    named = CONDITION.findall(text)[-1:]
    # Only PySpark's errors have this method. This module may not import PySpark to check their class.
    condition_of = getattr(error, "getCondition", None)
    pyspark_condition = condition_of() if callable(condition_of) else None
    return [f"condition {condition}" for condition in named or filter(None, [pyspark_condition])]


def _redacted(text: str) -> str:
    """Return a text without the password and without secrets in URLs, cut to MAX_TEXT characters."""
    line = SECRET.sub("...", _without_password(text))
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]}..."


def _without_password(text: str) -> str:
    password = os.environ.get(PASSWORD_ENV)
    return text.replace(password, "...") if password else text
