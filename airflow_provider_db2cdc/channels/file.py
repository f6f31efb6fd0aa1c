"""Signals in a file of JSON objects, to which users append."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import copymode

from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, signal_of
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.failpoint import failpoint

NAME = "file"
WRITING_S = 60.0
AS_THEY_ARE = "surrogateescape"
"""Python's error handler with which bytes that are not UTF-8 are read, and written back unchanged."""
LATE_S = 1.0
"""Seconds that a writer has to write a line, if it opened the file before the file was renamed."""


class FileChannel:
    """`signal.file`: lines like `{"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["S.T"]}}`.

    An object may have several lines. They count as one line here. A line is removed after the pipeline has acted on it.
    Its outcome is written to `<signal.file>.outcomes`. Debezium empties the file before it acts, and this channel does
    not. After a crash the line is still there, and its id says that it was acted on already.

    The file is replaced when lines are removed, so a writer must open it for each append. An incomplete object at the
    end counts as a signal that is being written, until the file has not changed for a minute.
    """

    name = NAME

    def __init__(self, config: PipelineConfig) -> None:
        if config.signal_file is None:
            raise ConfigurationError("signal.enabled.channels names file, but there is no signal.file", "Name one.")
        self.path = config.signal_file

    def read(self) -> Sequence[Signal]:
        """Return one signal per line. A line that is not a signal is one with the line's digest as its id.

        It is refused under that id.

        :raises ConfigurationError: when the file exists, but cannot be read.
        """
        with _naming(f"the signals in {self.path} cannot be read"):
            return self._signals()

    def check(self) -> None:
        """Check that outcomes can be written and lines removed. Nothing is written.

        :raises ConfigurationError: when the folder or the file of outcomes cannot be written.
        """
        outcomes = self._outcomes
        places = [self._file.parent, outcomes if outcomes.exists() else outcomes.parent]
        if outcomes.is_dir() or not all(os.access(place, os.W_OK) for place in places):
            raise ConfigurationError(
                f"outcomes of signals cannot be written to {self._outcomes}, nor lines be taken out of {self.path}",
                "Correct signal.file, or let the tick's user write in its folder: else each tick starts Spark.",
            )

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Write the outcomes, and remove the lines that were acted on.

        A line that repeats an earlier signal gets the same outcome again. Lines that were appended meanwhile stay. So
        does a line with the id of an answered signal that asks for something else.

        :raises ConfigurationError: when the file, or the file of outcomes next to it, cannot be written.
        """
        place = self._outcomes
        with _naming(f"signals that were acted on cannot be taken out of {self.path}"):
            given = self._signals()
        with _naming(f"the outcomes of signals cannot be written to {place}"):
            written = {*_lines(place)}
            due = [
                outcome
                for outcome in outcomes
                if outcome.as_json not in written or any(signal.is_answered([outcome]) for signal in given)
            ]
            _append(place, [outcome.as_json for outcome in due])
        with _naming(f"signals that were acted on cannot be taken out of {self.path}"):
            if any(signal.is_answered(outcomes) for signal in given) and not _is_being_written(self._file):
                self._remove(outcomes)

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _outcomes(self) -> Path:
        return self.path.with_name(f"{self.path.name}.outcomes")

    @property
    def _file(self) -> Path:
        """The file itself. If the path is a link, the link is kept."""
        return self.path.resolve()

    @property
    def _taken(self) -> Path:
        """The file of all lines while some are removed. It only remains after a crash."""
        return self._file.with_name(f"{self._file.name}.taken")

    def _signals(self) -> list[Signal]:
        entries = _entries(_text(self._file))
        whole = entries[:-1] if _is_being_written(self._file) else entries
        return [_signal(entry) for entry in [*_entries(_text(self._taken)), *whole]]

    def _remove(self, outcomes: Collection[SignalOutcome]) -> None:
        # Lines that remained after a crash in an earlier removal come first.
        file, taken_path = self._file, self._taken
        _append(file, _lines(taken_path))
        taken_path.unlink(missing_ok=True)
        os.replace(file, taken_path)
        with taken_path.open(encoding="utf-8", errors=AS_THEY_ARE) as taken:
            _append(file, [entry for entry in _entries(taken.read()) if not _signal(entry).is_answered(outcomes)])
            _hand_over(taken_path, file)
            # A writer that had opened the file before it was renamed may still write into it.
            time.sleep(LATE_S)
            _append(file, _split(taken.read()))
            taken_path.unlink(missing_ok=True)


@contextmanager
def _naming(problem: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{problem}: {error.strerror}", "Correct signal.file, or let the tick's user read and write in its folder."
        ) from error


def _lines(path: Path) -> list[str]:
    return _split(_text(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors=AS_THEY_ARE)
    except FileNotFoundError:
        return ""


def _split(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _entries(text: str) -> list[str]:
    """Return the objects of a text, each with all its lines.

    Text that is not an object goes up to the next line that begins one. A malformed object of several lines is so
    refused once, and not once per line.
    """
    lines, entries, start = "\n".join(_split(text)), list[str](), 0
    while start < len(lines):
        end = _end(lines, start)
        entries.append(lines[start:end])
        start = end + 1
    return entries


def _end(lines: str, start: int) -> int:
    """Return where the last line of the entry at `start` ends."""
    try:
        after, sign = json.JSONDecoder().raw_decode(lines, start)[1] if lines[start] == "{" else start, "\n"
    except (ValueError, RecursionError):
        after, sign = start, "\n{"
    end = lines.find(sign, after)
    return len(lines) if end < 0 else end


@failpoint("hand_over_signal_file")
def _hand_over(old: Path, new: Path) -> None:
    """Give the new file the mode, group and owner of the old one, as far as this user may do so."""
    copymode(old, new)
    old_stat = old.stat()
    for owner in ((-1, old_stat.st_gid), (old_stat.st_uid, -1)):
        with suppress(OSError):
            os.chown(new, *owner)


@failpoint("append_signal_lines")
def _append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a", encoding="utf-8", errors=AS_THEY_ARE) as file:
        file.writelines(f"{line}\n" for line in [*_unended(path), *lines])


def _unended(path: Path) -> list[str]:
    """Return an empty line if the last line of a file has no line end. The next line would be joined to it."""
    text = path.read_bytes()
    return [""] if text and not text.endswith(b"\n") else []


def _is_being_written(path: Path) -> bool:
    """Whether the last object may still be incomplete, because a writer is at work."""
    text = _text(path)
    entries = _entries(text)
    if not entries or _is_json(entries[-1]) or (text.endswith("\n") and not _is_begun(entries[-1])):
        return False
    return time.time() - path.stat().st_mtime < WRITING_S


def _is_begun(entry: str) -> bool:
    """Whether a text is the valid beginning of an object."""
    try:
        json.loads(entry)
    except json.JSONDecodeError as error:
        return entry.startswith("{") and error.pos >= len(entry.rstrip())
    except RecursionError:
        return False
    return False


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _signal(line: str) -> Signal:
    """Return a line's signal. A line without an id is refused, because two equal lines would be one signal."""
    digest = f"line {sha256(line.encode(errors=AS_THEY_ARE)).hexdigest()[:12]}"
    if any("\udc80" <= letter <= "\udcff" for letter in line):
        return Signal(digest, "", "", NAME, problem="it is not UTF-8")
    signal = signal_of(line, NAME, digest)
    if signal.id != digest or signal.problem:
        return signal
    return replace(signal, type="", data="", problem="it has no id")
