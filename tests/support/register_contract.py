"""The contract of a lease's register, for the one in memory and the one on S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_provider_db2cdc.tick.lease.lease import Register

RIVALS = 8


def check_register(register: Register) -> None:
    """Check a register that does not exist yet."""
    assert register.read() is None
    assert register.swap("no such tag", "nobody's") is None
    assert register.read() is None

    first = register.swap(None, "first")
    found = register.read()
    assert found is not None
    assert (found.tag, found.text) == (first, "first")

    assert register.swap(None, "too late") is None
    second = register.swap(first, "second")
    assert second not in (None, first)
    assert register.swap(first, "stale") is None
    found = register.read()
    assert found is not None
    assert (found.tag, found.text) == (second, "second")

    with ThreadPoolExecutor(RIVALS) as pool:
        tags = list(pool.map(lambda number: register.swap(second, f"rival {number}"), range(RIVALS)))
    [winner] = [number for number, tag in enumerate(tags) if tag is not None]
    found = register.read()
    assert found is not None
    assert (found.tag, found.text) == (tags[winner], f"rival {winner}")
