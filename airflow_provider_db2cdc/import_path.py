"""Classes of the user's own, which properties name as `module:Class`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from airflow_provider_db2cdc.errors import ConfigurationError


def load_class(path: str, name: str, hint: str) -> Callable[..., Any]:
    """Return the class that `module:Class` names, as the property `name` says it; `hint` is what else may stand there.

    :raises ConfigurationError: there is none, or its module cannot be imported, whatever it raises then.
    """
    module, _, kind = path.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), kind)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: {path!r} names no class ({error})", hint) from error
    except (Exception, SystemExit) as error:
        problem = f"{name}: {path!r} cannot be imported ({type(error).__name__}: {error})"
        raise ConfigurationError(problem, "Correct its module.") from error
    if not callable(found):
        raise ConfigurationError(f"{name}: {path!r} names no class, but a {type(found).__name__}", hint)
    return found
