from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from support.crash import killed

from airflow_provider_db2cdc.cdc.signal.request import parse
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.channels import file
from airflow_provider_db2cdc.channels.channel import check_channel
from airflow_provider_db2cdc.channels.file import FileChannel
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError
from airflow_provider_db2cdc.failpoint import Failpoint


def line(id_: object, kind: str = "pause-snapshot", **more: object) -> str:
    return json.dumps({"id": id_, "type": kind, **more})


def done(*ids: str) -> list[SignalOutcome]:
    return [SignalOutcome(id_, "file", "done", "", Signal(id_, "pause-snapshot", "{}", "file").asked) for id_ in ids]


class Signals:
    """A file of signals. Each look at it makes a new channel, as each task does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "signals.jsonl"
        self.taken = folder / "signals.jsonl.taken"
        self.config = PipelineConfig(pipeline="p", target="/t", signal_file=self.path)

    def append(self, *lines: str) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            out.writelines(f"{text}\n" for text in lines)

    def ids(self) -> list[str]:
        return [signal.id for signal in FileChannel(self.config).read()]

    def acknowledge(self, *outcomes: SignalOutcome) -> None:
        FileChannel(self.config).acknowledge(outcomes)

    @property
    def told(self) -> list[object]:
        path = self.path.with_name("signals.jsonl.outcomes")
        return [json.loads(text) for text in path.read_text("utf-8").splitlines()] if path.exists() else []


@pytest.fixture
def signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signals:
    monkeypatch.setattr(file, "LATE_S", 0.0)
    return Signals(tmp_path)


def test_a_line_written_to_a_file_opened_before_its_replacement_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals, waits = Signals(tmp_path), []
    signals.append(line("1"))
    with signals.path.open("a", encoding="utf-8") as late, monkeypatch.context() as patch:

        def write(wait_s: float) -> None:
            waits.append(wait_s)
            late.write(f"{line('2')}\n")
            late.flush()

        patch.setattr("time.sleep", write)
        signals.acknowledge(*done("1"))
    assert (signals.ids(), waits) == (["2"], [file.LATE_S])


def test_each_line_is_a_signal(signals: Signals) -> None:
    data = {"data-collections": ["S.T"]}
    signals.append(line("1", "execute-snapshot", data=data), "", line(2, "log", data=json.dumps({"message": "m"})))
    assert FileChannel(signals.config).read() == [
        Signal("1", "execute-snapshot", json.dumps(data), "file"),
        Signal("2", "log", '{"message": "m"}', "file"),
    ]


def test_no_file_is_no_signals(signals: Signals) -> None:
    assert signals.ids() == []
    signals.acknowledge()
    assert not signals.path.exists()


def test_line_stays_until_it_is_acknowledged(signals: Signals) -> None:
    signals.append(line("1"), line("2"), line("3"))
    assert signals.ids() == signals.ids() == ["1", "2", "3"]
    signals.acknowledge(*done("1", "3"))
    assert signals.ids() == ["2"]
    assert not signals.taken.exists()


def test_line_that_was_appended_meanwhile_stays(signals: Signals) -> None:
    signals.append(line("1"))
    channel = FileChannel(signals.config)
    channel.read()
    signals.append(line("2"))
    channel.acknowledge(done("1"))
    signals.append(line("3"))
    assert signals.ids() == ["2", "3"]


def test_outcomes_are_written_in_a_file_next_to_it(signals: Signals) -> None:
    signals.append(line("1"), line("2"))
    first, second = done("1", "2")
    signals.acknowledge(replace(second, status="refused", reason="why"), replace(first, status="accepted"))
    assert signals.ids() == []
    signals.acknowledge(*done("1"))
    assert signals.told == [
        {"id": "2", "status": "refused", "reason": "why"},
        {"id": "1", "status": "accepted", "reason": ""},
        {"id": "1", "status": "done", "reason": ""},
    ], "a snapshot's end comes ticks after its line is gone"


def test_acknowledging_twice_is_acknowledging_once(signals: Signals) -> None:
    signals.append(line("1"), line("2"))
    signals.acknowledge(*done("1"))
    signals.acknowledge(*done("1"))
    assert signals.ids() == ["2"]
    assert len(signals.told) == 1


def test_line_that_comes_again_is_answered_again(signals: Signals) -> None:
    """A user who asks daily under one id gets an outcome each time."""
    for _ in range(2):
        signals.append(line("1"))
        signals.acknowledge(*done("1"))
    assert signals.ids() == []
    assert signals.told == [{"id": "1", "status": "done", "reason": ""}] * 2


def test_one_signal_given_twice_is_consumed_and_answered_once(signals: Signals) -> None:
    signals.append(line("1"), line("1"))
    assert signals.ids() == ["1", "1"]
    signals.acknowledge(*done("1"))
    assert signals.ids() == []
    assert len(signals.told) == 1


def test_another_signal_of_an_id_stays_until_it_is_answered_itself(signals: Signals) -> None:
    """It was appended while the tick ran that acted on the first one. No tick has read it yet."""
    signals.append(line("1"), line("1", "resume-snapshot"))
    signals.acknowledge(*done("1"))
    [other] = FileChannel(signals.config).read()
    assert other.type == "resume-snapshot"
    signals.acknowledge(*done("1"), SignalOutcome(other.id_again, "file", "refused", "used", other.asked))
    assert signals.ids() == []


MALFORMED = ["{oops", "[1]", '"text"', "7", "null", "{}", '{"type": "log"}', line(None), line(""), "\ufffd"]
TOO_DEEP = pytest.param("[" * 100_000, id="too deep")


@pytest.mark.parametrize("text", [*MALFORMED, TOO_DEEP])
def test_malformed_line_is_refused_and_then_consumed(signals: Signals, text: str) -> None:
    signals.append(text, line("2"))
    bad, good = FileChannel(signals.config).read()
    assert bad.id.startswith("line ")
    with pytest.raises(SignalError):
        parse(bad)
    assert (good.id, parse(good)) == ("2", parse(Signal("2", "pause-snapshot", "", "file")))
    signals.acknowledge(SignalOutcome(bad.id, "file", "refused", "no"))
    assert signals.ids() == ["2"]


@pytest.mark.parametrize("data", ["7", '"{oops"', "[1]", '"[1]"'])
def test_data_that_are_no_object_are_refused_under_the_lines_own_id(signals: Signals, data: str) -> None:
    signals.append(f'{{"id": "1", "type": "pause-snapshot", "data": {data}}}')
    [signal] = FileChannel(signals.config).read()
    assert signal.id == "1"
    with pytest.raises(SignalError):
        parse(signal)


def test_bytes_that_are_no_text_are_refused_and_spoil_no_other_line(signals: Signals) -> None:
    signals.path.write_bytes(b"\xff\xfe\n" + line("2").encode() + b"\n")
    bad, good = signals.ids()
    assert good == "2"
    signals.acknowledge(*done("2"))
    assert signals.ids() == [bad]
    signals.acknowledge(SignalOutcome(bad, "file", "refused", "no"))
    assert signals.ids() == []


def test_text_of_another_code_page_is_refused_and_stays_as_it_is(signals: Signals) -> None:
    """Acted on as what can be read of it, it would read the rows of no city at all."""
    latin = b'{"id": "1", "type": "log", "data": {"message": "M\xfcnchen"}}'
    signals.path.write_bytes(latin + b"\n" + line("2").encode() + b"\n")
    bad, good = FileChannel(signals.config).read()
    with pytest.raises(SignalError, match="it is not UTF-8"):
        parse(bad)
    assert good.id == "2"
    signals.acknowledge(*done("2"))
    assert signals.path.read_bytes() == latin + b"\n"
    signals.acknowledge(SignalOutcome(bad.id, "file", "refused", "no"))
    assert signals.ids() == []


def test_line_separators_within_a_text_do_not_end_a_line(signals: Signals) -> None:
    signals.append('{"id": "1", "type": "log", "data": {"message": "a\u2028b\x85c"}}')
    assert signals.ids() == ["1"]


def test_last_line_that_is_not_ended_stays_one_of_its_own(signals: Signals) -> None:
    signals.taken.write_text(f"{line('1')}\n{line('2')}\n")
    signals.path.write_text(line("3"))
    signals.acknowledge(*done("2"))
    assert signals.ids() == ["3", "1"]


def test_line_of_which_one_half_is_written_waits_for_the_other_one(signals: Signals) -> None:
    signals.append(line("1"))
    whole = line("2")
    with signals.path.open("a", encoding="utf-8") as writer:
        writer.write(whole[:20])
        writer.flush()
        assert signals.ids() == ["1"]
        signals.acknowledge(*done("1"))
        assert signals.ids() == ["1"], "lines are taken out when the writer is done"
        writer.write(f"{whole[20:]}\n")
    assert signals.ids() == ["1", "2"]
    signals.acknowledge(*done("1"))
    assert signals.ids() == ["2"]


def test_half_a_line_that_is_never_completed_is_refused(signals: Signals) -> None:
    signals.path.write_text(line("1")[:-3])
    assert signals.ids() == []
    os.utime(signals.path, (0, 0))
    [bad] = FileChannel(signals.config).read()
    with pytest.raises(SignalError, match="it is not JSON: Unterminated string"):
        parse(bad)


def test_whole_last_line_needs_no_end(signals: Signals) -> None:
    signals.path.write_text(line("1"))
    assert signals.ids() == ["1"]


PRETTY = json.dumps({"id": "p", "type": "execute-snapshot", "data": {"data-collections": ["S.T"]}}, indent=2)


def test_an_object_over_several_lines_is_one_signal(signals: Signals) -> None:
    spaced = PRETTY.replace('"p"', '"q"').replace("\n", "\n\n")
    signals.append(line("1"), PRETTY, "", line("2"), spaced, PRETTY.replace('"p"', '"last"'))
    found = FileChannel(signals.config).read()
    assert [one.id for one in found] == ["1", "p", "2", "q", "last"]
    assert (found[1].type, found[1].data) == ("execute-snapshot", '{"data-collections": ["S.T"]}')
    signals.acknowledge(*(SignalOutcome(one.id, "file", "done", "", one.asked) for one in found[1:4]))
    assert signals.ids() == ["1", "last"]
    signals.acknowledge(SignalOutcome("last", "file", "done", "", found[4].asked))
    assert signals.path.read_text() == f"{line('1')}\n", "all its lines are taken out"


@pytest.mark.parametrize("text", [PRETTY.replace("]", "],"), PRETTY.replace('"S.T"', '"S.T'), PRETTY[:-1]], ids=repr)
def test_a_damaged_object_of_several_lines_is_refused_once(signals: Signals, text: str) -> None:
    signals.append(line("1"), text, line("2"), PRETTY)
    before, bad, after, last = FileChannel(signals.config).read()
    assert (before.id, after.id, last.id) == ("1", "2", "p")
    with pytest.raises(SignalError, match="it is not JSON"):
        parse(bad)
    signals.acknowledge(SignalOutcome(bad.id, "file", "refused", "", bad.asked))
    assert signals.ids() == ["1", "2", "p"]


@pytest.mark.parametrize("lines", range(1, len(PRETTY.splitlines())))
def test_an_object_of_which_some_lines_are_written_waits_for_the_others(signals: Signals, lines: int) -> None:
    first, rest = PRETTY.splitlines()[:lines], PRETTY.splitlines()[lines:]
    signals.append(line("1"), *first)
    assert signals.ids() == ["1"]
    signals.acknowledge(*done("1"))
    signals.append(*rest)
    assert signals.ids() == ["1", "p"]
    signals.acknowledge(*done("1"))
    assert signals.ids() == ["p"]


def test_link_to_the_file_stays_a_link(signals: Signals, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "asked.jsonl"
    real.parent.mkdir()
    real.write_text(f"{line('1')}\n{line('2')}\n")
    signals.path.symlink_to(real)
    signals.acknowledge(*done("1"))
    assert signals.path.is_symlink()
    assert (signals.ids(), real.read_text()) == (["2"], f"{line('2')}\n")
    assert [*real.parent.iterdir()] == [real]


def test_crash_between_taking_and_writing_back_loses_nothing(signals: Signals) -> None:
    signals.append(line("1"), line("2"))
    os.replace(signals.path, signals.taken)
    assert signals.ids() == ["1", "2"]
    signals.append(line("3"))
    assert signals.ids() == ["1", "2", "3"]
    signals.acknowledge(*done("1"))
    assert sorted(signals.ids()) == ["2", "3"]
    assert not signals.taken.exists()


@pytest.mark.parametrize(
    ("step", "at"), [("append_signal_lines", 3), ("hand_over_signal_file", 1)], ids=["taken", "written back"]
)
def test_crash_at_any_step_loses_nothing_and_brings_nothing_back(signals: Signals, step: Failpoint, at: int) -> None:
    signals.append(line("1"), line("2"))
    with killed(step, "before", at):
        signals.acknowledge(*done("1"))
    assert signals.taken.exists()
    assert "2" in signals.ids()
    signals.acknowledge(*done("1"))
    assert set(signals.ids()) == {"2"}


def test_crash_while_late_writers_are_waited_for_loses_nothing(
    signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals.append(line("1"), line("2"))
    with signals.path.open("a", encoding="utf-8") as late, monkeypatch.context() as patch:

        def write_and_die(_: float) -> None:
            late.write(f"{line('3')}\n")
            late.flush()
            raise KeyboardInterrupt

        patch.setattr("time.sleep", write_and_die)
        with pytest.raises(KeyboardInterrupt):
            signals.acknowledge(*done("1"))
    assert {*signals.ids()} >= {"2", "3"}
    signals.acknowledge(*done("1"))
    assert {*signals.ids()} == {"2", "3"}


def test_who_may_write_signals_stays_as_it_was(signals: Signals) -> None:
    signals.append(line("1"))
    signals.path.chmod(0o662)
    signals.acknowledge(*done("1"))
    assert stat.S_IMODE(signals.path.stat().st_mode) == 0o662


def test_a_file_of_signals_stays_its_writers_own(signals: Signals) -> None:
    """Only root gives files away; anybody else to groups of his own."""
    owner = (1234, 5678) if os.getuid() == 0 else (os.getuid(), os.getgroups()[-1])
    signals.append(line("1"))
    os.chown(signals.path, *owner)
    signals.acknowledge(*done("1"))
    assert (signals.path.stat().st_uid, signals.path.stat().st_gid) == owner


@pytest.mark.parametrize("name", ["signals.jsonl.outcomes", "signals.jsonl.taken"])
def test_a_failed_acknowledgement_names_its_cause_and_loses_no_signal(signals: Signals, name: str) -> None:
    signals.append(line("1"), line("2"))
    signals.path.with_name(name).mkdir()
    with pytest.raises(ConfigurationError, match=r"signals.*signals\.jsonl.*: Is a directory\. Correct signal\.file"):
        signals.acknowledge(*done("1"))
    assert '"2"' in signals.path.read_text("utf-8")


def test_channel_needs_a_file() -> None:
    with pytest.raises(ConfigurationError, match=r"no signal\.file"):
        FileChannel(PipelineConfig(pipeline="p", target="/t"))


def test_folder_in_the_files_place_is_named(signals: Signals) -> None:
    signals.path.mkdir()
    with pytest.raises(ConfigurationError, match=r"signals\.jsonl cannot be read: Is a directory"):
        signals.ids()


def test_doctor_says_that_lines_cannot_be_taken_out(tmp_path: Path) -> None:
    config = Signals(tmp_path).config
    check_channel(config, "file")
    assert list(tmp_path.iterdir()) == [], "it writes nothing"
    (tmp_path / "signals.jsonl.outcomes").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be written to .*signals\.jsonl\.outcomes"):
        check_channel(config, "file")


@pytest.mark.parametrize("closed", ["linked", "signals.outcomes", "real"])
def test_places_that_only_the_commit_writes_to_are_looked_at_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """The file is a link: lines leave the file that it names, and outcomes are written next to the link."""
    real, linked = tmp_path / "real", tmp_path / "linked"
    real.mkdir()
    linked.mkdir()
    (real / "signals").touch()
    (linked / "signals").symlink_to(real / "signals")
    if closed == "signals.outcomes":
        (linked / closed).touch()
    config = PipelineConfig(pipeline="p", target="/t", signal_channels=("file",), signal_file=linked / "signals")
    check_channel(config, "file")
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != closed)
    with pytest.raises(ConfigurationError, match="outcomes of signals cannot be written to"):
        check_channel(config, "file")
