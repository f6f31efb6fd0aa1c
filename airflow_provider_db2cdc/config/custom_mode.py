"""The load of a snapshot mode of the user's own, a class that snapshot.mode.custom.name names."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.snapshot.mode import CUSTOM, CustomMode, Snapshotter
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.import_path import load_class

SNAPSHOTTER_METHODS = [name for name in vars(Snapshotter) if not name.startswith("_")]


def load_snapshotter(path: str) -> Snapshotter:
    """Return an object of the class that `module:Class` names.

    :raises ConfigurationError: when there is no such class, it needs arguments, or it lacks a method.
    """
    name, hint = CUSTOM, "Name a class as module:Class; cdc.snapshot.mode.Snapshotter says what it needs."
    kind = load_class(path, name, hint)
    try:
        snapshotter: Snapshotter = kind()
    except Exception as error:
        raise ConfigurationError(f"{name}: {path!r} cannot be made without arguments ({error})", hint) from error
    if lacking := [method for method in SNAPSHOTTER_METHODS if not callable(getattr(snapshotter, method, None))]:
        raise ConfigurationError(f"{name}: {path!r} has no method {lacking[0]}", hint)
    return CustomMode(path, snapshotter)
