"""The history that is put together from replaced versions, and what going back to one changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from memory_service.domain import Entity, Memory, new_id
from memory_service.lifecycle.versions import content_of, history_page
from memory_service.shapes import memory_json
from memory_service.stores.postgres.versions import ReplacedVersion
from memory_service.write.drafts import apply_patch, differences
from tests.unit.lifecycle.lifecycle_factories import NOW, a_memory


def replaced(memory: Memory, version: int, cause: str = "update") -> ReplacedVersion:
    """`version` as it was kept when the next one replaced it."""
    snapshot = memory_json(replace(memory, version=version, content=f"text {version}"))
    changes = {"content": {"from": f"text {version}", "to": f"text {version + 1}"}}
    return ReplacedVersion(version, NOW + timedelta(hours=version), f"key:{version}", cause, changes, snapshot)


def test_each_version_is_told_with_the_change_that_made_it() -> None:
    memory = a_memory(version=3, content="text 3", written_by="local")
    page = history_page(memory, [replaced(memory, 2, "rollback to version 1"), replaced(memory, 1)], 2, 10, first=True)
    assert [item.version for item in page.items] == [3, 2, 1]
    assert [item.cause for item in page.items] == ["rollback to version 1", "update", "write"]
    assert [item.actor for item in page.items] == ["key:2", "key:1", "local"]
    assert [item.at for item in page.items] == [NOW + timedelta(hours=2), NOW + timedelta(hours=1), NOW]
    assert page.items[1].changes == {"content": {"from": "text 1", "to": "text 2"}}
    assert page.items[2].changes == {}
    assert [item.snapshot and item.snapshot["content"] for item in page.items] == [None, "text 2", "text 1"]
    assert (page.total, page.more) == (3, False)


def test_pages_follow_each_other_without_gap_or_repeat() -> None:
    memory = a_memory(version=7)
    kept = [replaced(memory, version) for version in range(6, 0, -1)]
    seen: list[int] = []
    below = memory.version
    for turn in range(4):
        rows = [row for row in kept if row.version < below][:3]  # the store hands out one row more than a page has
        page = history_page(memory, rows, len(kept), 2, first=turn == 0)
        seen += [item.version for item in page.items]
        assert all(item.cause in ("update", "write") for item in page.items)
        below = seen[-1]
        assert page.more == (below > 1)
    assert seen == [7, 6, 5, 4, 3, 2, 1]


def test_a_memory_that_was_never_changed_has_one_version() -> None:
    page = history_page(a_memory(), [], 0, 1, first=True)
    assert [(i.version, i.cause, i.changes, i.snapshot) for i in page.items] == [(1, "write", {}, None)]
    assert (page.total, page.more) == (1, False)


def test_a_version_whose_maker_was_not_kept_says_so() -> None:
    page = history_page(a_memory(version=5), [], 0, 5, first=True)
    assert [(i.version, i.at, i.actor, i.cause) for i in page.items] == [(5, None, None, None)]


def test_the_patch_of_a_snapshot_brings_everything_back_that_a_patch_may_change() -> None:
    old = a_memory(
        content="old", tags=("a", "b"), entities=(Entity("Redis", "tool"),), outcome="success", importance=0.9, category="c",
        event_type="e", metadata={"n": None, "deep": [1, 2.5]}, related_ids=(new_id(),),
        expires_at=NOW + timedelta(days=1), confidence=0.25,
    )  # fmt: skip
    now = replace(a_memory(id=old.id), state="cold", pinned=True, heat=0.1, version=4)
    after = apply_patch(now, content_of(memory_json(old), NOW), None, NOW)
    assert after == replace(old, state="cold", pinned=True, heat=0.1, version=5)
    assert set(differences(after, old)) == {"state", "pinned"}


def test_an_end_of_life_that_has_passed_is_not_brought_back() -> None:
    snapshot = memory_json(a_memory(expires_at=NOW))
    assert "expires_at" not in content_of(snapshot, NOW)
    assert content_of(snapshot, NOW - timedelta(seconds=1))["expires_at"] == NOW
    assert content_of(memory_json(a_memory()), NOW)["expires_at"] is None
