"""One property of a configuration, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["used", "ignored", "refused", "transform"]
Form = Literal["text", "list", "path", "mapping"]


@dataclass(frozen=True)
class Property:
    """One property. A `name` that ends with `*` stands for all names that begin with it.

    `text` says what it does, why it is ignored, or why it is refused. `field` is the field of PipelineConfig that a
    used property fills. With `*` that field is a mapping. `form` is how its text is read. `default` is its default, as
    the documentation shows it.
    """

    name: str
    kind: Kind
    text: str
    field: str = ""
    form: Form = "text"
    default: str = ""
    accepts: tuple[str, ...] = ()


def used(name: str, field: str, text: str, default: str = "", form: Form = "text") -> Property:
    """Return a property that fills a field of the configuration."""
    return Property(name, "used", text, field, form, default)


def ignored(reason: str, *names: str) -> tuple[Property, ...]:
    """Return properties that have no meaning here, all for the same reason."""
    return tuple(Property(name, "ignored", reason) for name in names)


def refused(name: str, reason: str, *accepts: str) -> Property:
    """Return a property that is not supported. `accepts` are values that ask for the normal behaviour."""
    return Property(name, "refused", reason, accepts=accepts)
