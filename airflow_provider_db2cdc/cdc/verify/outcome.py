"""The outcome of a verification for people: what differs where, and what to do."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.offset.offset import heal_hint, restart_hint
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult
from airflow_provider_db2cdc.errors import Db2CdcError, DifferenceError

SHOWN_RANGES = 5


def check_outcome(result: VerifyResult, remedy_of_unfinished: str) -> None:
    """Check that every table was compared as a whole, and is equal.

    :raises DifferenceError: when tables differ from the source. The text names the first one first.
    :raises Db2CdcError: when tables could not be verified, or not completely. A later run continues.
    """
    differing, failed = result.with_status("different"), result.with_status("failed")
    if differing:
        lines = [describe_difference(verdict) for verdict in differing]
        lines += [f"{verdict.table} could not be verified: {verdict.error}" for verdict in failed]
        first = differing[0].table
        raise DifferenceError(
            "\n".join(lines),
            f"Heal {first}: {heal_hint(first)}. Or have it snapshotted again by {restart_hint(first)}.",
        )
    if failed:
        raise Db2CdcError("\n".join(f"{verdict.table} could not be verified: {verdict.error}" for verdict in failed))
    if unfinished := result.with_status("unfinished"):
        names = ", ".join(str(verdict.table) for verdict in unfinished)
        raise Db2CdcError(f"the time is used up, and not all chunks are compared of {names}", remedy_of_unfinished)


def describe_difference(verdict: TableVerdict) -> str:
    """Return in a line how a table differs from its source."""
    counts = {"missing": verdict.missing, "surplus": verdict.surplus, "different": verdict.different}
    found = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    places = [describe_range(place) for place in verdict.ranges[:SHOWN_RANGES]]
    more = len(verdict.ranges) - len(places)
    where = "; ".join([*places, *([f"{more} more places"] if more else [])])
    return f"{verdict.table} differs from its source: {found} rows ({where})"


def describe_range(place: ChunkDifference) -> str:
    """Return the name of a place: the numbers of its chunks, and its keys if they are to be shown."""
    name = f"chunk {place.first}" if place.first == place.last else f"chunks {place.first} to {place.last}"
    low, high = ", ".join(place.low), ", ".join(place.high)
    ends = [f"after ({low})"] if low else []
    ends += [f"up to ({high})"] if high else []
    return f"{name}: {' '.join(ends)}" if ends else name
