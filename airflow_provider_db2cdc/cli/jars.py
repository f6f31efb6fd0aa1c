"""`db2cdc jars`: fetches the jars that Spark needs. In a clone it fetches those of the sandbox and the tests too."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_db2cdc.cli.screen import note, working
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.submit.jars import Part, default_folder, ensure_jars, ivy_resolve
from airflow_provider_db2cdc.submit.stores import store_part

KEPT_LINES = 60


def run(
    into: Path | None, ivy_settings: Path | None, parts: Sequence[Part] = ("spark",), stores: Sequence[str] = ()
) -> None:
    """Fetch the jars of these parts and stores that the folder lacks.

    :raises ConfigurationError: when a store has no tested jars, or jars cannot be fetched.
    """
    parts = [*parts, *map(store_part, stores)]
    folder = (into or default_folder()).expanduser().resolve()
    output: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        with working(f"Ivy resolves what is missing in {folder}"):
            fetched = ensure_jars(folder, parts, ivy_resolve(output.append, ivy_settings))
    except Db2CdcError:
        note("\n".join(output))
        raise
    for path in fetched:
        note(f"{path.relative_to(folder)}  {path.stat().st_size / 1e6:.1f} MB")
    note(f"{folder}: {'complete' if fetched else 'all there already'}")
