"""A spark-submit that is a script, in a folder of its own."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any


class FakeSpark:
    """A folder with a spark-submit that is a script."""

    def __init__(self, folder: Path) -> None:
        self.binary = folder / "spark-submit"
        script = Path(__file__).with_name("fake_spark_submit.py").read_text(encoding="utf-8")
        self.binary.write_text(f"#!{sys.executable}\n{script}", encoding="utf-8")
        self.binary.chmod(self.binary.stat().st_mode | stat.S_IXUSR)

    def call(self) -> Any:
        """Return what it was last called with."""
        return json.loads(self.binary.with_name("call.json").read_text(encoding="utf-8"))

    def specs(self) -> list[Any]:
        """Return each spec that it was given, also by earlier calls."""
        lines = self.binary.with_name("specs.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @property
    def called(self) -> bool:
        """Whether it was called at all."""
        return self.binary.with_name("call.json").exists()
