"""What the demo shows while it runs: the completed steps, and below them what happens now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from airflow_provider_db2cdc.cli.screen import Console, Text

REFRESHES_PER_SECOND = 5


@dataclass
class Step:
    """A running step. At the end `outcome` is shown after its title, in red when it is not `good`."""

    title: str
    started: float = field(default_factory=time.monotonic)
    outcome: str = ""
    good: bool = True

    @property
    def seconds(self) -> float:
        """Seconds that it has taken so far."""
        return time.monotonic() - self.started


class Board:
    """Steps on a console. On a terminal the running step is animated. Elsewhere each line is written once and stays."""

    def __init__(self, console: Console, counters: Callable[[], str] = lambda: "") -> None:
        self.console = console
        self.counters = counters
        self._step: Step | None = None
        self._said = ""
        self._spinner = Spinner("dots")
        self._live = Live(
            console=console,
            get_renderable=self._now,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        )

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show the block as a step. Its time and outcome are shown at the end."""
        self._step, self._said = Step(title), ""
        if not self.console.is_terminal:
            self._line("", title, "dim")
        try:
            yield self._step
        except BaseException:
            self._line(f"{self._step.seconds:6.1f} s  ", f"{title}: not done", "red")
            raise
        else:
            text = f"{title}: {self._step.outcome}" if self._step.outcome else title
            self._line(f"{self._step.seconds:6.1f} s  ", text, "green" if self._step.good else "red")
        finally:
            self._step = None

    def tell(self, line: str) -> None:
        """Show what happens within the step."""
        self._said = line
        if not self.console.is_terminal:
            self._line("", f"  {line}", "dim")

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _line(self, time_text: str, text: str, style: str) -> None:
        line = Text(f"{time_text:>10}", style=style) + Text(text, style="" if time_text else style)
        self.console.print(line, soft_wrap=True)

    def _now(self) -> RenderableType:
        step = self._step
        if step is None:
            return Text("")
        self._spinner.update(text=Text(f"{step.seconds:6.1f} s  {step.title}"))
        lines = [Text(f"{'':10}{text}", style="dim") for text in (self._said, self.counters()) if text]
        return Group(self._spinner, *lines)
