"""Conversions of the values that YAML, JSON or a text give for properties."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr


def _plain_text(value: Any) -> Any:
    """Return a YAML number or boolean as the text that a driver or Spark expects. Other values stay as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _quoted(value: Any) -> Any:
    """Reject a password that YAML reads as a number. It reads 0123 as 83."""
    if isinstance(value, bool | int | float):
        raise ValueError("put the password in quotes; it is read as a number or a boolean")
    return value


def _number(value: Any) -> Any:
    """Reject a boolean for a number. Python takes true for 1: a chunk of one row, or a timeout of one second."""
    if isinstance(value, bool):
        raise ValueError("give a number; the value is read as a boolean")
    return value


def _word(value: Any) -> Any:
    """Return a word of a fixed list in lower case and without outer blanks, as Debezium reads it."""
    return value.strip().lower() if isinstance(value, str) else value


PlainText = Annotated[str, BeforeValidator(_plain_text)]
Password = Annotated[SecretStr, BeforeValidator(_quoted)]

_NUMBER = BeforeValidator(_number)
Count = Annotated[int, Field(gt=0), _NUMBER]
CountOrZero = Annotated[int, Field(ge=0), _NUMBER]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _NUMBER]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), _NUMBER]
WORD = BeforeValidator(_word)
