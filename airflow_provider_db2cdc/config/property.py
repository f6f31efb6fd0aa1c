"""One property of a configuration, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["used", "ignored", "refused", "transform"]
Form = Literal["text", "list", "path", "mapping"]


@dataclass(frozen=True)
class Property:
    """One property; a `name` that ends with `*` stands for all that begin so.

    `text` says what it does, why it is ignored, or why it is refused. `field` is the place in PipelineConfig that a
    used one fills (one with `*` fills a mapping there); `form` is how its text is read; `default` is how the
    documentation writes its default.
    """

    name: str
    kind: Kind
    text: str
    field: str = ""
    form: Form = "text"
    default: str = ""
    accepts: tuple[str, ...] = ()


def used(name: str, field: str, text: str, default: str = "", form: Form = "text") -> Property:
    """Return a property that fills a place of the configuration."""
    return Property(name, "used", text, field, form, default)


def ignored(reason: str, *names: str) -> tuple[Property, ...]:
    """Return properties that have no meaning here, for one reason."""
    return tuple(Property(name, "ignored", reason) for name in names)


def refused(name: str, reason: str, *accepts: str) -> Property:
    """Return a property that is not supported; `accepts` are values that ask for what is done anyway."""
    return Property(name, "refused", reason, accepts=accepts)
