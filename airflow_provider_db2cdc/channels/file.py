"""Signals in a file: a JSON object a line, appended by whoever has something to ask."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from shutil import copymode

from airflow_provider_db2cdc.cdc.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError

NAME = "file"


class FileChannel:
    """`signal.file`: lines like `{"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["S.T"]}}`.

    A line goes once it was acted on, and what becomes of it is told in lines of `<signal.file>.outcomes`. Unlike
    Debezium's, the file is not emptied before: a crash leaves the line, and its id tells that it was acted on already.
    """

    name = NAME

    def __init__(self, config: PipelineConfig) -> None:
        if config.signal_file is None:
            raise ConfigurationError("signal.enabled.channels names file, but there is no signal.file", "Name one.")
        self.path = config.signal_file

    def read(self) -> Sequence[Signal]:
        """Return a signal a line; one that is none comes with its line's digest for an id, to be refused by it.

        :raises ConfigurationError: the file is there and cannot be read.
        """
        return [_signal(line) for line in [*_lines(self._taken), *_lines(self.path)]]

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Tell the outcomes, and remove the lines that were acted on; lines that were appended meanwhile stay."""
        place = self.path.with_name(f"{self.path.name}.outcomes")
        told = {*_lines(place)}
        _append(place, [text for text in map(_told, outcomes) if text not in told])
        acted = {outcome.id for outcome in outcomes}
        if any(signal.id in acted for signal in self.read()):
            self._remove(acted)

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _taken(self) -> Path:
        """Where the lines are while acted ones are taken out of them; it stays after a crash only."""
        return self.path.with_name(f"{self.path.name}.taken")

    def _remove(self, acted: Collection[str]) -> None:
        # What a crash left of an earlier removal comes first.
        _append(self.path, _lines(self._taken))
        self._taken.unlink(missing_ok=True)
        os.replace(self.path, self._taken)
        with self._taken.open(encoding="utf-8", errors="replace") as taken:
            _append(self.path, [line for line in _split(taken.read()) if _signal(line).id not in acted])
            copymode(self._taken, self.path)
            self._taken.unlink()
            # Who had opened the file before it was renamed may have written into it since.
            _append(self.path, _split(taken.read()))


def _lines(path: Path) -> list[str]:
    try:
        return _split(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigurationError(f"the signals in {path} cannot be read: {error.strerror}", "Correct it.") from error


def _split(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in [*_unended(path), *lines])


def _unended(path: Path) -> list[str]:
    """Return an empty line where the last one of a file is not ended, or it and the next one would be one."""
    text = path.read_bytes()
    return [""] if text and not text.endswith(b"\n") else []


def _told(outcome: SignalOutcome) -> str:
    return json.dumps({"id": outcome.id, "status": outcome.status, "reason": outcome.reason})


def _signal(line: str) -> Signal:
    try:
        item = json.loads(line)
        id_, kind, data = item.get("id"), item.get("type") or "", item.get("data") or {}
    except (ValueError, AttributeError):
        id_, kind, data = None, "", {}
    if id_ in (None, ""):
        return Signal(f"line {sha256(line.encode()).hexdigest()[:12]}", "", "", NAME)
    return Signal(str(id_), str(kind), data if isinstance(data, str) else json.dumps(data), NAME)
