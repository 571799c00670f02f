"""Is the sha256 of a file the right one, whatever its size?"""

import hashlib
from pathlib import Path

import pytest

from memory_service.models.file_digest import PIECE_BYTES, sha256_of


@pytest.mark.parametrize("size", [0, 1, 4097, PIECE_BYTES, PIECE_BYTES + 1])
def test_the_digest_is_that_of_all_bytes(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert sha256_of(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()
