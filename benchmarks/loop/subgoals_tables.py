"""Subgoals of data queries: sources, column case, row caps, partitions, stale views, dialects, types."""

from __future__ import annotations

from benchmarks.loop.subgoals import Kind, Plan, Subgoal, Values, plain, repeated, varied
from benchmarks.loop.subgoals_apis import WAITS_S
from benchmarks.loop.world import Call

_SPLIT_AT = ("date", "id", "price", "rate")


def _written(column: str) -> tuple[str, str, str]:
    """The ways to write a two-word column: invoicedate, invoice_date, InvoiceDate."""
    second = next(word for word in _SPLIT_AT if column.endswith(word))
    first = column.removesuffix(second)
    return column, f"{first}_{second}", f"{first.title()}{second.title()}"


def column(values: Values) -> Subgoal:
    """Only the replica is asked here, so that one trap comes at a time; `source` has the other."""
    table, written = values.of("table"), _written(values.of("column"))
    base = {"table": table, "limit": 100, "source": "replica"}
    return Subgoal(
        f"read {written[0]} of {table}", f"读取 {table} 的 {written[0]}", varied("query_table", base, "column", written)
    )


def staging_column(values: Values) -> Subgoal:
    """Staging tables are written in lower case, as one would guess."""
    table, written = f"staging_{values.of('table')}", _written(values.of("column"))
    base = {"table": table, "limit": 100, "source": "replica"}
    return Subgoal(
        f"read {written[0]} of {table}", f"读取 {table} 的 {written[0]}", varied("query_table", base, "column", written)
    )


def source(values: Values) -> Subgoal:
    table = values.of("table")
    base = {"table": table, "column": "Amount", "limit": 100}
    return Subgoal(
        f"read the amounts of {table}",
        f"读取 {table} 的金额",
        varied("query_table", base, "source", ("primary", "default", "replica")),
    )


def all_rows(values: Values) -> Subgoal:
    table = values.of("table")
    base = {"table": table, "column": "Amount", "source": "replica"}
    return Subgoal(
        f"read many rows of {table}",
        f"读取 {table} 的大量行",
        varied("query_table", base, "limit", (10_000, 5_000, 2_000, 1_000, 500)),
    )


def partition(values: Values) -> Subgoal:
    table, (year, month, day) = values.of("table"), values.day()
    forms = (f"{year}-{month:02}-{day}", f"{year}/{month:02}/{day}", f"{year}{month:02}{day}")
    return Subgoal(
        f"load {table} of {forms[0]}",
        f"加载 {table} {forms[0]} 的分区",
        varied("load_partition", {"table": table}, "day", forms),
    )


def view(values: Values) -> Subgoal:
    name = values.of("view")
    read = Call("read_view", {"view": name})
    plans = (
        Plan("as asked", (read,)),
        Plan("again", (read,)),
        Plan("nocache", (Call("read_view", {"view": name, "nocache": True}),)),
        Plan("refresh", (Call("refresh_view", {"view": name}), read)),
    )
    return Subgoal(f"read the view {name}", f"读取视图 {name}", plans)


def metric(values: Values) -> Subgoal:
    name, (year, _, _) = values.of("stem"), values.day()
    years = (f"{year}", f"{year}-01-01", f"y{year}", year)
    return Subgoal(
        f"get the metric {name} of {year}",
        f"取 {year} 年的指标 {name}",
        varied("get_metric", {"name": name}, "year", years),
    )


def buckets(values: Values) -> Subgoal:
    table = values.of("table")
    zones = ("UTC", "CST", "Asia/Shanghai")
    return Subgoal(
        f"count {table} by day", f"按天统计 {table}", varied("bucket_by_day", {"table": table}, "timezone", zones)
    )


def report(values: Values) -> Subgoal:
    name = f"{values.of('stem')}_summary"
    dialects = ("postgres", "mysql", "ansi", "oracle")
    return Subgoal(
        f"run the report {name}", f"运行报表 {name}", varied("run_report", {"report": name}, "dialect", dialects)
    )


def top_rows(values: Values) -> Subgoal:
    table = values.of("table")
    select = f"SELECT Amount FROM {table} ORDER BY Amount DESC"
    queries = (
        f"{select} LIMIT 10",
        f"{select} LIMIT 10;",
        f"SELECT TOP 10 Amount FROM {table} ORDER BY Amount DESC",
        f"{select} FETCH FIRST 10 ROWS ONLY",
    )
    return Subgoal(
        f"find the ten largest amounts in {table}",
        f"找出 {table} 中最大的十笔金额",
        varied("run_sql", {}, "sql", queries),
    )


def export(values: Values) -> Subgoal:
    table = values.of("table")
    return Subgoal(
        f"export {table} for the auditors",
        f"为审计导出 {table}",
        varied("export_rows", {"table": table}, "format", ("xlsx", "xls", "csv")),
    )


def small_export(values: Values) -> Subgoal:
    table = values.of("small")
    return Subgoal(
        f"export {table} as a sheet",
        f"导出 {table}",
        varied("export_rows", {"table": table}, "format", ("xlsx", "csv")),
    )


def job(values: Values) -> Subgoal:
    name = f"{values.of('stem')}_rollup"
    return Subgoal(f"run the job {name}", f"运行作业 {name}", repeated(Call("run_job", {"job": name}), WAITS_S))


def description(values: Values) -> Subgoal:
    table = values.of("table")
    return plain("describe_table", f"describe {table}", f"查看 {table} 的结构", table=table)


def counting(values: Values) -> Subgoal:
    table = values.of("table")
    return plain("count_rows", f"count the rows of {table}", f"数 {table} 的行数", table=table)


TRAPS: tuple[Kind, ...] = (column, source, view, partition, all_rows, metric, buckets, report, job, export, top_rows)
LOOK_ALIKES: tuple[Kind, ...] = (small_export, staging_column)
PLAIN: tuple[Kind, ...] = (description, counting)
