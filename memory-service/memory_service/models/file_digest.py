"""What is the sha256 of a large file?  Read in pieces so large that other threads hardly delay it.

Every piece ends with a wait for Python's lock: with hashlib's own 256 KiB the weights of a model took three times as long while the
service's rules were read beside it.
"""

import hashlib
import mmap
from pathlib import Path

PIECE_BYTES = 16 * 1024 * 1024


def sha256_of(path: Path) -> str:
    """In hexadecimal.  Raises OSError."""
    whole = hashlib.sha256()
    # A mapping goes back to the system; a freed buffer of this size may stay with the allocator.
    with path.open("rb", buffering=0) as file, mmap.mmap(-1, PIECE_BYTES) as piece:
        while count := file.readinto(piece):
            with memoryview(piece) as seen:
                whole.update(seen[:count])
    return whole.hexdigest()
