"""What a production run has shown: differences of source and target, runs, and what they cost in memory and rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.demo.comparison.compare import read_tables, source_table
from airflow_provider_db2cdc.demo.comparison.rows import by_key, differing
from support.airflow_metadata import Metadata
from support.production import PIPELINES, Production


def differences(production: Production) -> dict[str, str]:
    """Return what is wrong with each table: its rows, or the number of its events."""
    lake = production.home.lake
    layouts = {table: Layout(str(lake / table.schema.lower())) for table in production.tables}
    target = read_tables(production.home, layouts)
    found: dict[str, str] = {}
    with closing(production.sandbox.connect()) as connection:
        for table in production.tables:
            columns, rows = source_table(connection, table)
            there = target[str(table)]
            order = [there["columns"].index(name) for name in columns]
            source_side = by_key(columns, rows, ["ID"])
            target_side = by_key(columns, ([row[at] for at in order] for row in there["rows"]), ["ID"])
            if keys := differing(source_side, target_side):
                found[str(table)] = f"{len(keys)} rows differ, such as {keys[0]}"
            events = Counter({op: there["events"].get(op, 0) for op in "cud"})
            if events != production.writer.counts[table] and not production.writer.lost:
                found[f"{table} events"] = f"{dict(events)}, written {dict(production.writer.counts[table])}"
    return found


def missing_offsets(production: Production) -> list[str]:
    """Return the tables without an offset."""
    api, kept = production.api, set[str]()
    for name in PIPELINES:
        variable = api.get(f"variables/db2cdc.{name}~offsets")
        kept |= set(json.loads(variable["value"])["tables"])
    return sorted(str(table) for table in production.tables if str(table) not in kept)


def holes(metadata: Metadata) -> dict[str, list[Any]]:
    """Return the ranges of batches of those tables whose asset events do not follow on each other."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    query = (
        "SELECT asset.uri, event.extra FROM asset_event event JOIN asset ON asset.id = event.asset_id ORDER BY event.id"
    )
    for uri, extra in metadata.rows(query):
        given = extra if isinstance(extra, Mapping) else json.loads(extra)
        if "from_batch" in given:
            ranges[str(uri)].append((given["from_batch"], given["to_batch"]))
    return {
        uri: found for uri, found in ranges.items() if any(later[0] != before[1] for before, later in pairwise(found))
    }


def run_states(metadata: Metadata) -> dict[str, Counter[str]]:
    """Return how many runs of each DAG ended how."""
    return {
        f"{name}_{kind}": Counter(run.state for run in metadata.runs(f"{name}_{kind}"))
        for name in PIPELINES
        for kind in ("cdc", "snapshot")
    }


def snapshot_ends(production: Production) -> dict[str, str]:
    """Return the state of the run of each request that did not end with its snapshot completed."""
    found: dict[str, str] = {}
    for dag, run_id in production.asked:
        [state] = [run.state for run in production.metadata.runs(dag) if run.run_id == run_id]
        query = "SELECT value FROM xcom WHERE dag_id = %s AND run_id = %s AND key = 'progress'"
        progress = [
            value if isinstance(value, Mapping) else json.loads(value)
            for (value,) in production.metadata.rows(query, dag, run_id)
        ]
        ends = [one["status"] for one in progress]
        if state != "success" or ends != ["completed"]:
            found[f"{dag}/{run_id}"] = f"{state}, snapshots {ends}"
    return found


def cost_of_runs(metadata: Metadata, apply_state: str) -> dict[str, tuple[float, int]]:
    """Return rows and bytes that a scheduled run leaves in each table of Airflow's database, on the average.

    The runs are those whose task `apply` ended so. It is skipped if there was nothing to do. Indexes are not counted.
    """
    of_work = (
        "SELECT run.dag_id, run.run_id FROM dag_run run JOIN task_instance task USING (dag_id, run_id) "
        "WHERE run.run_type = 'scheduled' AND task.task_id = 'tick.apply' AND task.state = %s"
    )
    runs = len(metadata.rows(of_work, apply_state))
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    named = {(table, column) for table, column in metadata.rows(columns)}
    found: dict[str, tuple[float, int]] = {"runs": (runs, 0)}
    for table in sorted({table for table, _ in named}):
        for prefix in ("", "source_"):
            if runs and {(table, f"{prefix}dag_id"), (table, f"{prefix}run_id")} <= named:
                query = f'SELECT COUNT(*), COALESCE(SUM(pg_column_size(kept.*)), 0) FROM "{table}" kept'
                where = f"WHERE (kept.{prefix}dag_id, kept.{prefix}run_id) IN ({of_work})"
                [(count, size)] = metadata.rows(f"{query} {where}", apply_state)
                found[table] = round(count / runs, 1), round(size / runs)
    return {table: cost for table, cost in found.items() if cost[0]}
