"""What the DAG `inside` calls: a Variable can only be written from within a task."""

from collections.abc import Callable

CALLS: list[Callable[[], None]] = []
