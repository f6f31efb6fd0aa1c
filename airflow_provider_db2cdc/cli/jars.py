"""`db2cdc jars`: the jars that Spark needs, in a clone also those of the sandbox and the tests, fetched once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_db2cdc.cli.screen import note, working
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.submit.jars import Part, default_folder, ensure_jars, ivy_resolve

KEPT_LINES = 60


def run(into: Path | None, ivy_settings: Path | None, parts: Sequence[Part] = ("spark",)) -> None:
    """Fill the folder with what is missing in it of these parts."""
    folder = (into or default_folder()).expanduser().resolve()
    said: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        with working(f"Ivy resolves what is missing in {folder}"):
            came = ensure_jars(folder, parts, ivy_resolve(said.append, ivy_settings))
    except Db2CdcError:
        note("\n".join(said))
        raise
    for path in came:
        note(f"{path.relative_to(folder)}  {path.stat().st_size / 1e6:.1f} MB")
    note(f"{folder}: {'complete' if came else 'all there already'}")
