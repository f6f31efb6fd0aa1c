"""Calls of IBM's CLI driver that lose no character between Python and Db2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import ibm_db
import ibm_db_dbi

from airflow_provider_db2cdc.errors import ConfigurationError

UTF_8 = 1208
"""Db2's code page for UTF-8.

The driver takes the process's code page from DB2CODEPAGE or the locale. It does so once, when the first connection is
opened, even if that fails. The locales C and POSIX, and any that is not installed, mean 819 (Latin-1). The driver then
turns every other character of a statement, a parameter or a value into X'1A', without an error.
"""

OPTIONS = {ibm_db.SQL_ATTR_CLIENT_CODEPAGE: UTF_8}
"""Options that give a connection its own code page. They take effect after user and password are sent."""


def connect(dsn: str) -> Any:
    """Return an `ibm_db_dbi` connection that carries every character of Unicode. Its autocommit is off."""
    _prefer_utf_8()
    return ibm_db_dbi.connect(dsn, "", "", conn_options=dict(OPTIONS))


def open_handle(dsn: str, options: dict[int, int] | None = None) -> Any:
    """Return an `ibm_db` connection that carries every character of Unicode."""
    _prefer_utf_8()
    return ibm_db.connect(dsn, "", "", {**OPTIONS, **(options or {})})


def execute(cursor: Any, text: str, params: Sequence[Any] = ()) -> None:
    """Run a statement on a cursor of `ibm_db_dbi`.

    :raises ConfigurationError: when a text holds half a character (a lone surrogate).
    """
    for value in params:
        if isinstance(value, str):
            _units(value)
    cursor.execute(padded(text), tuple(params) or None)


def padded(text: str) -> str:
    """Return a statement's text with as many blanks at its end as `ibm_db.prepare` cuts off.

    ibm_db passes UTF-16 with the length in code points. A character outside the BMP is two units of UTF-16, so each of
    them cuts one unit off the end.
    """
    return text + " " * (_units(text) - len(text))


def _units(text: str) -> int:
    """Return the length in units of UTF-16. A lone surrogate is rejected: at one the driver would end the process."""
    try:
        return len(text.encode("utf-16-le")) // 2
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise ConfigurationError(
            f"a name or text for Db2 holds half a character ({half})",
            "Correct it. On a command line or in an environment variable, use a UTF-8 locale.",
        ) from None


def _prefer_utf_8() -> None:
    """Have the process's first connection use UTF-8 for its login, unless the user has chosen a code page."""
    if not os.environ.get("DB2CODEPAGE"):
        os.environ["DB2CODEPAGE"] = str(UTF_8)
