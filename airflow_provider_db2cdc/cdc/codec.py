"""Conversion between frozen dataclasses and plain JSON data, checked by the annotations of the dataclasses."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

T = TypeVar("T")


def to_data(value: Any) -> Any:
    """Return `value` as JSON data: dataclasses as objects, tuples as arrays, LSNs as their text."""
    if isinstance(value, Lsn):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in value]
    return value


@overload
def from_data(kind: type[T], data: Any) -> T: ...


@overload
def from_data(kind: Any, data: Any) -> Any: ...


def from_data(kind: Any, data: Any) -> Any:
    """Return the instance of `kind` that `data` describes. The members of a union differ in their literal `type`.

    :raises ConfigurationError: when a field is unknown or missing, or a value has another type. The text names its
        path.
    """
    return _read(kind, data, getattr(kind, "__name__", "value"))


def _read(kind: Any, data: Any, path: str) -> Any:
    origin = get_origin(kind)
    if kind is Lsn:
        return _read_lsn(data, path)
    if is_dataclass(kind):
        return _read_object(kind, data, path)
    if origin in (Union, types.UnionType):
        members = [arg for arg in get_args(kind) if arg is not type(None)]
        return None if data is None else _read(_member(members, data, path), data, path)
    if origin is tuple:
        items = _expect(data, list, path)
        return tuple(_read(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(items))
    if origin in (dict, Mapping):
        return {key: _read(get_args(kind)[1], item, f"{path}.{key}") for key, item in _expect(data, dict, path).items()}
    if origin is Literal:
        if data not in get_args(kind):
            raise ConfigurationError(f"{path} is {data!r}, expected one of {', '.join(map(str, get_args(kind)))}")
        return data
    return _expect(data, kind, path)


def _member(members: Sequence[Any], data: Any, path: str) -> Any:
    """Return the member of a union that `data` describes: the only one, or the one with the same `type`."""
    if len(members) == 1:
        return members[0]
    by_type = {name: member for member in members for name in get_args(_hints(member)["type"])}
    return by_type[_read(Literal[(*by_type,)], _expect(data, dict, path).get("type"), f"{path}.type")]


def _read_lsn(data: Any, path: str) -> Lsn:
    try:
        return Lsn.parse(_expect(data, str, path))
    except OffsetError as error:
        raise ConfigurationError(f"{path}: {error.problem}", error.remedy) from error


def _read_object(kind: Any, data: Any, path: str) -> Any:
    given = _expect(data, dict, path)
    hints = _hints(kind)
    known = {field.name for field in fields(kind)}
    if unknown := sorted(set(given) - known):
        raise ConfigurationError(
            f"{path} has no field {unknown[0]!r}", "Check whether another version of this provider wrote it."
        )
    try:
        return kind(**{name: _read(hints[name], item, f"{path}.{name}") for name, item in given.items()})
    except TypeError as error:
        raise ConfigurationError(f"{path}: {error}") from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _expect(data: Any, kind: Any, path: str) -> Any:
    if kind is Any or (kind is float and type(data) is int):
        return data
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise ConfigurationError(f"{path} is a {type(data).__name__}, expected {kind.__name__}")
    return data
