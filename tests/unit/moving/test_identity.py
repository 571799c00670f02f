"""Which id does an imported thing get?"""

# ruff: noqa: E501 - one case reads best on one line

from uuid import UUID, uuid4

from memory_service.moving.identity import Known, Owner, moved_changes, moved_snapshot, seed_id, twin_of

OLD = UUID("019a0000-0000-7000-8000-000000000001")
TWIN = twin_of("t", "ana", OLD)
OURS, SHARED, THEIRS = Owner("memory", True, "ana"), Owner("memory", True, "*shared"), Owner("memory", False)


def test_a_free_id_stays() -> None:
    assert Known("t").place(OLD, "ana").id == OLD  # type: ignore[union-attr]
    assert Known("t").reference(OLD, "ana") == OLD


def test_an_id_of_ones_own_is_found() -> None:
    known = Known("t", {OLD: OURS})
    assert (known.place(OLD, "ana").id, known.place(OLD, "ana").there) == (OLD, OURS)  # type: ignore[union-attr]


def test_an_id_of_another_tenant_or_user_is_replaced_by_its_twin() -> None:
    for owner in (THEIRS, Owner("memory", True, "bob"), SHARED):
        place = Known("t", {OLD: owner}).place(OLD, "ana")
        assert place is not None
        assert (place.id, place.there) == (TWIN, None)


def test_a_twin_that_was_made_before_is_found_even_when_the_old_id_is_free_again() -> None:
    assert Known("t", {TWIN: OURS}).place(OLD, "ana").there == OURS  # type: ignore[union-attr]
    assert Known("t", {TWIN: OURS}).reference(OLD, "ana") == TWIN


def test_an_erased_id_and_an_erased_twin_have_no_place() -> None:
    for erased in ({OLD: True}, {TWIN: True}, {OLD: False, TWIN: True}):
        assert Known("t", {}, erased).place(OLD, "ana") is None
        assert Known("t", {}, erased).reference(OLD, "ana") is None


def test_an_id_that_another_tenant_erased_is_replaced_by_its_twin() -> None:
    assert Known("t", {}, {OLD: False}).place(OLD, "ana").id == TWIN  # type: ignore[union-attr]


def test_a_reference_into_the_common_pool_stays() -> None:
    assert Known("t", {OLD: SHARED}).reference(OLD, "ana") == OLD


def test_a_kept_version_follows_and_forgets_what_was_erased() -> None:
    gone, free = uuid4(), uuid4()
    known = Known("t", {OLD: THEIRS, TWIN: OURS}, {gone: True})
    snapshot = {"id": str(OLD), "user_id": "bob", "content": str(OLD), "related_ids": [str(OLD), str(gone), str(free)], "superseded_by": str(gone), "conflict_id": None}  # fmt: skip
    assert moved_snapshot(snapshot, known, "ana") == {
        "id": str(TWIN), "user_id": "ana", "content": str(OLD), "related_ids": [str(TWIN), str(free)], "superseded_by": None, "conflict_id": None,
    }  # fmt: skip
    changes = {"superseded_by": {"from": None, "to": str(OLD)}, "content": {"from": str(OLD), "to": "x"}}
    assert moved_changes(changes, known, "ana") == {
        "superseded_by": {"from": None, "to": str(TWIN)},
        "content": {"from": str(OLD), "to": "x"},
    }


def test_twins_and_seed_ids_are_uuids_of_version_7_and_depend_on_everything() -> None:
    ids = {
        TWIN, twin_of("t", "ana", uuid4()), twin_of("s", "ana", OLD), twin_of("t", "bob", OLD),
        *(seed_id(t, u, w, d) for t in "ts" for u in "ab" for w in ("memory", "experience") for d in (b"1", b"2")),  # type: ignore[arg-type]
    }  # fmt: skip
    assert len(ids) == 4 + 16
    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}
    assert twin_of("t", "ana", OLD) == TWIN
