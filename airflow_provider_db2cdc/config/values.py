"""Values of properties as YAML, JSON or a text have them, and what is taken for them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr


def _plain_text(value: Any) -> Any:
    """Return a YAML number or boolean as the text that a driver or Spark wants; everything else as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _quoted(value: Any) -> Any:
    """Refuse a password that YAML takes for a number: 0123 is 83 to it."""
    if isinstance(value, bool | int | float):
        raise ValueError("put the password in quotes; it is read as a number or a boolean")
    return value


def _number(value: Any) -> Any:
    """Refuse a boolean where a number is wanted: to Python true is 1, a chunk of one row or a timeout of a second."""
    if isinstance(value, bool):
        raise ValueError("give a number; the value is read as a boolean")
    return value


def _word(value: Any) -> Any:
    """Return one of a property's own words as it is listed: without regard to case or blanks, as Debezium does."""
    return value.strip().lower() if isinstance(value, str) else value


PlainText = Annotated[str, BeforeValidator(_plain_text)]
Password = Annotated[SecretStr, BeforeValidator(_quoted)]

_NUMBER = BeforeValidator(_number)
Count = Annotated[int, Field(gt=0), _NUMBER]
CountOrZero = Annotated[int, Field(ge=0), _NUMBER]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _NUMBER]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), _NUMBER]
WORD = BeforeValidator(_word)
