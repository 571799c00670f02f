"""Subgoals of file handling: tables in odd encodings, read-only mounts, locked workbooks, upload limits, date formats."""

from __future__ import annotations

from benchmarks.loop.subgoals import Kind, Plan, Subgoal, Values, plain, varied
from benchmarks.loop.world import Call

ENCODINGS = ("utf-8", "latin-1", "utf-8-sig", "gbk", "utf-16")  # in the order in which they are guessed


def _table(path: str, column: str, english: str, chinese: str, delimiters: tuple[str, ...] = (",",)) -> Subgoal:
    """Encodings are varied first, then delimiters."""
    base = {"path": path, "column": column}
    plans = [
        Plan(f"encoding={encoding} delimiter={delimiter!r}", (
            Call("read_table", {**base, "encoding": encoding, "delimiter": delimiter}),
        ))
        for delimiter in delimiters
        for encoding in ENCODINGS
    ]  # fmt: skip
    plans.sort(key=lambda plan: plan.calls[0].arguments["encoding"] != "utf-8")
    return Subgoal(f"{english} {path}", f"{chinese} {path}", tuple(plans))


def chinese_table(values: Values) -> Subgoal:
    path = f"/archive/cn/{values.of('stem')}_{values.number()}.txt"
    return _table(path, "编号", "read column 编号 of", "读取编号列：")


def exchange_table(values: Values) -> Subgoal:
    path = f"/exchange/{values.of('stem')}_{values.number()}.tsv"
    return _table(path, "name", "read the names in", "读取名称：", ("\t",))


def excel_export(values: Values) -> Subgoal:
    path = f"/exports/excel/{values.of('stem')}_{values.number()}.csv"
    return _table(path, "编号", "collect the numbers from", "收集编号：")


def european_export(values: Values) -> Subgoal:
    path = f"/exports/eu/{values.of('stem')}_{values.number()}.csv"
    return _table(path, "amount", "sum up", "汇总", (",", "\t", ";"))


def web_export(values: Values) -> Subgoal:
    """Looks like its neighbours and needs nothing special."""
    path = f"/exports/web/{values.of('stem')}_{values.number()}.csv"
    return _table(path, "amount", "add up the amounts in", "合计金额：", (",", ";"))


def report_table(values: Values) -> Subgoal:
    """Looks like its neighbours and needs nothing special."""
    path = f"/archive/reports/{values.of('stem')}_{values.number()}.txt"
    return _table(path, "编号", "look up 编号 in", "查编号：")


def archive_note(values: Values) -> Subgoal:
    stem = f"{values.of('stem')}_{values.number()}.md"
    base = {"text": f"done for {values.of('person')}", "line_ending": "lf"}
    paths = (f"/mnt/archive/notes/{stem}", f"/mnt/archive/{stem}", f"/mnt/staging/notes/{stem}")
    return Subgoal(f"archive the note {stem}", f"归档说明 {stem}", varied("write_file", base, "path", paths))


def batch_script(values: Values) -> Subgoal:
    path = f"/mnt/staging/{values.of('stem')}.bat"
    base = {"path": path, "text": "rem start"}
    return Subgoal(
        f"write the script {path}", f"写脚本 {path}", varied("write_file", base, "line_ending", ("lf", "cr", "crlf"))
    )


def shell_script(values: Values) -> Subgoal:
    """Looks like the batch script and wants the default."""
    path = f"/mnt/staging/{values.of('stem')}.sh"
    base = {"path": path, "text": "set -e"}
    return Subgoal(
        f"write the script {path}", f"写脚本 {path}", varied("write_file", base, "line_ending", ("lf", "crlf"))
    )


def workbook(values: Values) -> Subgoal:
    return _cells(f"/books/{values.of('stem')}_{values.number()}.xlsx", values)


def draft(values: Values) -> Subgoal:
    """A workbook that nobody else has: no checkout is needed."""
    return _cells(f"/drafts/{values.of('stem')}_{values.number()}.xlsx", values)


def _cells(path: str, values: Values) -> Subgoal:
    cells = {"B2": values.number(), "B3": values.number()}
    write = Call("write_cells", {"path": path, "cells": cells})
    plans = (
        Plan("as asked", (write,)),
        Plan("again", (write,)),
        Plan("force", (Call("write_cells", {**write.arguments, "force": True}),)),
        Plan("checkout", (Call("checkout_workbook", {"path": path}), write)),
    )
    return Subgoal(f"enter two figures into {path}", f"在 {path} 填两个数", plans)


def upload(values: Values) -> Subgoal:
    path = f"/videos/{values.of('stem')}_{values.number()}.mp4"
    return Subgoal(
        f"upload {path}", f"上传 {path}", varied("upload_file", {"path": path}, "chunk_mb", (64, 32, 16, 8, 4))
    )


def file_date(values: Values) -> Subgoal:
    year, month, day = values.day()
    path = f"/photos/{values.of('stem')}_{values.number()}.jpg"
    forms = (
        f"{month:02}/{day}/{year}",
        f"{day}/{month:02}/{year}",
        f"{day}.{month:02}.{year}",
        f"{year}-{month:02}-{day}",
    )
    return Subgoal(
        f"date {path} to {forms[0]}",
        f"把 {path} 的日期改为 {forms[0]}",
        varied("set_modified", {"path": path}, "modified", forms),
    )


def folder(values: Values) -> Subgoal:
    path = f"/inbox/{values.of('stem')}/"
    return plain("list_folder", f"see what is in {path}", f"看看 {path}", path=path)


def size(values: Values) -> Subgoal:
    path = f"/inbox/{values.of('stem')}_{values.number()}.zip"
    return plain("file_info", f"note the size of {path}", f"记下 {path} 的大小", path=path)


def unpacking(values: Values) -> Subgoal:
    path = f"/inbox/{values.of('stem')}_{values.number()}.zip"
    return plain("unpack", f"unpack {path}", f"解压 {path}", path=path, target="/work/")


TRAPS: tuple[Kind, ...] = (
    chinese_table, upload, archive_note, workbook, exchange_table, file_date, excel_export, batch_script, european_export,
)  # fmt: skip
LOOK_ALIKES: tuple[Kind, ...] = (web_export, report_table, shell_script, draft)
PLAIN: tuple[Kind, ...] = (folder, size, unpacking)
