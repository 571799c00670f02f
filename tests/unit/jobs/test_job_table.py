"""The numbers of the jobs, and what a run says in words."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.jobs.job import Job, JobNumbers
from memory_service.jobs.runner import Finished, told
from memory_service.jobs.schedule import summary
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.settings import Settings, load_tunables
from memory_service.stores.postgres.job_runs import RunRow
from memory_service.stores.postgres.locks import lock_key

SHIPPED = load_tunables(Settings())


async def _nothing(_run: JobRun) -> JobReport:
    return JobReport(0)


def finished(done: int, *, dry_run: bool, whys: tuple[str, ...] = ()) -> Finished:
    row = RunRow(uuid4(), "decay", "t", "request", dry_run, datetime.now(UTC), done=done)
    return Finished(row, JobReport(done, [JobItem(uuid4(), "ana", why) for why in whys]))


def test_a_dry_run_says_what_it_would_do_and_why() -> None:
    job = Job("decay", None, "archive", _nothing)
    assert (
        summary(job, finished(12, dry_run=True, whys=("heat 0.27 is below 0.3",)))
        == "would archive 12: heat 0.27 is below 0.3"
    )
    assert (
        summary(job, finished(12, dry_run=False, whys=("heat 0.27 is below 0.3",)))
        == "archived 12: heat 0.27 is below 0.3"
    )
    assert summary(job, finished(3, dry_run=False)) == "archived 3"
    assert summary(job, finished(0, dry_run=True)) == "nothing to archive"


@pytest.mark.parametrize(
    ("verb", "past"), [("archive", "archived"), ("repair", "repaired"), ("compress", "compressed"), ("write", "wrote")]
)
def test_verbs_have_a_past(verb: str, past: str) -> None:
    assert Job("x", None, verb, _nothing).past == past


def test_the_shipped_schedules_are_those_of_the_readme() -> None:
    numbers = SHIPPED.section("jobs", JobNumbers)
    assert numbers.timing("reconcile").text == "daily 03:00"
    assert {name: numbers.timing(name).period.total_seconds() / 3600 for name in ("decay", "purge", "compress", "insights")} == {
        "decay": 1, "purge": 24, "compress": 168, "insights": 24,
    }  # fmt: skip


def test_a_schedule_that_makes_no_sense_is_refused_at_the_start_and_named() -> None:
    extra = {**(SHIPPED.model_extra or {}), "jobs": {**(SHIPPED.model_extra or {})["jobs"], "decay": "every day"}}
    changed = type(SHIPPED).model_validate({**SHIPPED.model_dump(), **extra})
    with pytest.raises(SetupRefused, match=r"\[jobs\].*decay"):
        changed.section("jobs", JobNumbers)


def test_of_an_unexpected_error_only_the_kind_is_told() -> None:
    assert told(RuntimeError("postgresql://user:secret@host/")) == "internal error (RuntimeError), see the log"
    assert told(StoreUnavailable("qdrant")) == "qdrant is not reachable"


def test_lock_keys_are_signed_64_bit_numbers_that_differ_by_name_and_stay_the_same() -> None:
    keys = {lock_key(f"decay/{i}") for i in range(1000)}
    assert len(keys) == 1000
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert lock_key("decay") == lock_key("decay")
