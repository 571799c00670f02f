"""Does the stack keep its files private, whole and readable after damage?"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from local_stack.errors import AlreadyRunning, StackError
from local_stack.home import is_locked, locked, open_home, read_json, write_private


def test_a_secret_is_made_once_and_stays(tmp_path: Path) -> None:
    first = open_home(tmp_path).secret("postgres")
    assert len(first) >= 32
    assert open_home(tmp_path).secret("postgres") == first
    assert open_home(tmp_path).secret("redis") != first


def test_a_private_file_is_replaced_whole_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_private(path, "old")
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("damage", ["", "{", "[1]", "null", "\x00\xff"])
def test_a_damaged_state_file_counts_as_none(tmp_path: Path, damage: str) -> None:
    (tmp_path / "x").write_text(damage)
    assert read_json(tmp_path / "x") == {}
    assert read_json(tmp_path / "missing") == {}


def test_only_one_supervisor_holds_a_home(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    assert not is_locked(home)
    with locked(home):
        assert is_locked(home)
        with pytest.raises(AlreadyRunning, match="hindsight down"), locked(home):
            pass
    assert not is_locked(home)


def test_a_home_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="--home"):
        open_home(tmp_path / "file" / "home")
