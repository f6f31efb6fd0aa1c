"""Classes of the user's own, which properties name as `module:Class`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from airflow_provider_db2cdc.errors import ConfigurationError


def load_class(path: str, name: str, hint: str) -> Callable[..., Any]:
    """Return the class that `module:Class` names, the value of property `name`. `hint` says what else is allowed.

    :raises ConfigurationError: there is no such class, or its module cannot be imported, whatever it raises.
    """
    module, _, kind = path.partition(":")
    try:
        member: Callable[..., Any] = getattr(import_module(module), kind)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: {path!r} names no class ({error})", hint) from error
    except (Exception, SystemExit) as error:
        problem = f"{name}: {path!r} cannot be imported ({type(error).__name__}: {error})"
        raise ConfigurationError(problem, "Correct its module.") from error
    if not callable(member):
        raise ConfigurationError(f"{name}: {path!r} names no class, but a {type(member).__name__}", hint)
    return member
