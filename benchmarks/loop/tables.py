"""The data tools: a warehouse with its dialect, case-sensitive columns, partitions, stale views and caps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.loop.world import ToolFailed, World, take

ROWS_MAX = 1000
SMALL_TABLES = frozenset({"countries", "currencies", "holidays"})


def query_table(_world: World, arguments: Mapping[str, Any]) -> str:
    table, column, limit, source = take(arguments, ("table", "column", "limit", "source"))
    if source == "primary":
        raise ToolFailed("403 Forbidden: reporting users may not read from primary")
    written = r"[a-z]+" if table.startswith("staging_") else r"(?:[A-Z][a-z]+)+"
    if not re.fullmatch(written, column):
        raise ToolFailed(f'ERROR: column "{column}" does not exist')
    if limit > ROWS_MAX:
        raise ToolFailed("ERROR: result set too large")
    return f"{limit} rows of {table}.{column}"


def describe_table(_world: World, arguments: Mapping[str, Any]) -> str:
    (table,) = take(arguments, ("table",))
    return f"{table}: 14 columns, 3 partitions"


def count_rows(_world: World, arguments: Mapping[str, Any]) -> str:
    (table,) = take(arguments, ("table",))
    return f"{table}: {len(table) * 173} rows"


def load_partition(_world: World, arguments: Mapping[str, Any]) -> str:
    table, day = take(arguments, ("table", "day"))
    if not re.fullmatch(r"\d{8}", day):
        raise ToolFailed("ERROR: no such partition")
    return f"{table}/{day}: loaded"


def refresh_view(world: World, arguments: Mapping[str, Any]) -> str:
    (view,) = take(arguments, ("view",))
    world.marks.add(("view", view))
    return f"refreshed {view}"


def read_view(world: World, arguments: Mapping[str, Any]) -> str:
    view, *_ = take(arguments, ("view",), ("nocache",))
    if ("view", view) not in world.marks:
        raise ToolFailed(f'ERROR: materialized view "{view}" has not been populated')
    return f"{view}: 31 rows"


def get_metric(_world: World, arguments: Mapping[str, Any]) -> str:
    name, year = take(arguments, ("name", "year"))
    if not isinstance(year, int):
        raise ToolFailed("TypeError: operator does not exist: integer = text")
    return f"{name} in {year}: {year % 97}"


def bucket_by_day(_world: World, arguments: Mapping[str, Any]) -> str:
    table, timezone = take(arguments, ("table", "timezone"))
    if timezone != "Asia/Shanghai":
        raise ToolFailed(f'ERROR: buckets of "{table}" do not add up to the ledger in time zone {timezone}')
    return f"{table}: 28 days"


def run_report(_world: World, arguments: Mapping[str, Any]) -> str:
    report, dialect = take(arguments, ("report", "dialect"))
    if dialect != "oracle":
        raise ToolFailed("ORA-00933: SQL command not properly ended")
    return f"report {report}: 12 lines"


def run_sql(_world: World, arguments: Mapping[str, Any]) -> str:
    (sql,) = take(arguments, ("sql",))
    if "FETCH FIRST" not in sql:
        raise ToolFailed("ORA-00933: SQL command not properly ended")
    return "10 rows"


def export_rows(_world: World, arguments: Mapping[str, Any]) -> str:
    table, file_format = take(arguments, ("table", "format"))
    if file_format in ("xlsx", "xls") and table not in SMALL_TABLES:
        raise ToolFailed("ERROR: sheet is full")
    return f"exported {table} as {file_format}"


def run_job(world: World, arguments: Mapping[str, Any]) -> str:
    (job,) = take(arguments, ("job",))
    if world.limited("jobs", 1, 45.0) > 0:
        raise ToolFailed("503 Service Unavailable: another job is running")
    return f"{job} done"


TOOLS: Mapping[str, Callable[..., str]] = {
    tool.__name__: tool
    for tool in (
        query_table, describe_table, count_rows, load_partition, refresh_view, read_view, get_metric, bucket_by_day,
        run_report, run_sql, export_rows, run_job,
    )
}  # fmt: skip
