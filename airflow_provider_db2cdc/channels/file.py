"""Signals in a file: JSON objects, appended by whoever has something to ask."""

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
"""Python's name for reading bytes that are not UTF-8 so that they are written back as they were."""
LATE_S = 1.0
"""So long somebody who has opened the file has time to write a line, once the file was renamed."""


class FileChannel:
    """`signal.file`: lines like `{"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["S.T"]}}`.

    An object may go over several lines; all of them are its line here. A line goes once it was acted on, and what
    becomes of it is told in lines of `<signal.file>.outcomes`. Unlike Debezium's, the file is not emptied before: a
    crash leaves the line, and its id tells that it was acted on already. Who appends opens the file anew each time: it
    is replaced when lines are taken out. What comes last and is only begun is taken for a signal that is being written,
    until the file has been left alone for a minute.
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
        with _naming(f"the signals in {self.path} cannot be read"):
            return self._signals()

    def check(self) -> None:
        """Make sure that outcomes can be told and lines taken out; nothing is written.

        :raises ConfigurationError: the folder, or the file of the outcomes, cannot be written.
        """
        outcomes = self._outcomes
        places = [self._file.parent, outcomes if outcomes.exists() else outcomes.parent]
        if outcomes.is_dir() or not all(os.access(place, os.W_OK) for place in places):
            raise ConfigurationError(
                f"what became of signals cannot be told in {self._outcomes}, nor lines be taken out of {self.path}",
                "Correct signal.file, or let the tick's user write in its folder: else each tick starts Spark.",
            )

    def acknowledge(self, outcomes: Collection[SignalOutcome]) -> None:
        """Tell the outcomes, and remove the lines that were acted on.

        A line that asks again what was answered before is told the same again. Lines that were appended meanwhile stay,
        also those of an id that was acted on which ask for something else.

        :raises ConfigurationError: the file, or the one of the outcomes beside it, cannot be written.
        """
        place = self._outcomes
        with _naming(f"signals that were acted on cannot be taken out of {self.path}"):
            given = self._signals()
        with _naming(f"the outcomes of signals cannot be told in {place}"):
            told = {*_lines(place)}
            due = [one for one in outcomes if one.as_json not in told or any(of.is_answered([one]) for of in given)]
            _append(place, [one.as_json for one in due])
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
        """The file itself where the path is a link to it, so that the link stays one."""
        return self.path.resolve()

    @property
    def _taken(self) -> Path:
        """Where the lines are while acted ones are taken out of them; it stays after a crash only."""
        return self._file.with_name(f"{self._file.name}.taken")

    def _signals(self) -> list[Signal]:
        entries = _entries(_text(self._file))
        whole = entries[:-1] if _is_being_written(self._file) else entries
        return [_signal(entry) for entry in [*_entries(_text(self._taken)), *whole]]

    def _remove(self, outcomes: Collection[SignalOutcome]) -> None:
        # What a crash left of an earlier removal comes first.
        file, taken_path = self._file, self._taken
        _append(file, _lines(taken_path))
        taken_path.unlink(missing_ok=True)
        os.replace(file, taken_path)
        with taken_path.open(encoding="utf-8", errors=AS_THEY_ARE) as taken:
            _append(file, [one for one in _entries(taken.read()) if not _signal(one).is_answered(outcomes)])
            _hand_over(taken_path, file)
            # Who had opened the file before it was renamed may write into it still.
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
    """Return the objects of a text, each with all its lines; what is none goes up to the next line that begins one.

    So an object over several lines that is spoilt is refused once, and not by each of its lines.
    """
    lines, entries, at = "\n".join(_split(text)), list[str](), 0
    while at < len(lines):
        end = _end(lines, at)
        entries.append(lines[at:end])
        at = end + 1
    return entries


def _end(lines: str, at: int) -> int:
    """Return where the last line ends of what begins here."""
    try:
        behind, sign = json.JSONDecoder().raw_decode(lines, at)[1] if lines[at] == "{" else at, "\n"
    except (ValueError, RecursionError):
        behind, sign = at, "\n{"
    found = lines.find(sign, behind)
    return len(lines) if found < 0 else found


@failpoint("hand_over_signal_file")
def _hand_over(old: Path, new: Path) -> None:
    """Let whoever might write the old file write the new one, as far as this user may give files away."""
    copymode(old, new)
    kept = old.stat()
    for owner in ((-1, kept.st_gid), (kept.st_uid, -1)):
        with suppress(OSError):
            os.chown(new, *owner)


@failpoint("append_signal_lines")
def _append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a", encoding="utf-8", errors=AS_THEY_ARE) as file:
        file.writelines(f"{line}\n" for line in [*_unended(path), *lines])


def _unended(path: Path) -> list[str]:
    """Return an empty line where the last one of a file is not ended, or it and the next one would be one."""
    text = path.read_bytes()
    return [""] if text and not text.endswith(b"\n") else []


def _is_being_written(path: Path) -> bool:
    """Whether somebody may have written only the first part of the last object so far."""
    text = _text(path)
    entries = _entries(text)
    if not entries or _is_json(entries[-1]) or (text.endswith("\n") and not _is_begun(entries[-1])):
        return False
    return time.time() - path.stat().st_mtime < WRITING_S


def _is_begun(entry: str) -> bool:
    """Whether an object is all right as far as it goes."""
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
    """Return a line's signal; without an id of its own two equal lines would be one signal, so it is refused."""
    digest = f"line {sha256(line.encode(errors=AS_THEY_ARE)).hexdigest()[:12]}"
    if any("\udc80" <= letter <= "\udcff" for letter in line):
        return Signal(digest, "", "", NAME, problem="it is not UTF-8")
    signal = signal_of(line, NAME, digest)
    if signal.id != digest or signal.problem:
        return signal
    return replace(signal, type="", data="", problem="it has no id")
