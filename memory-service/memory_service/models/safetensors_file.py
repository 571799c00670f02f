"""What is inside a `model.safetensors` file?

Layout: u64 length · JSON header {name: {dtype, shape, data_offsets}} · the tensors, little-endian, offsets counted from the end of
the header.  Read from a memory map; nothing here knows a model.
"""

import mmap
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from memory_service.errors import SetupRefused

_DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
_HEADER_BYTES_MAX = 100_000_000  # the format's own bound


class SafetensorsFile:
    """Tensors by name, in float32.  Raises SetupRefused when the file is no safetensors file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            (length,) = struct.unpack_from("<Q", self._bytes, 0)
            if length > min(len(self._bytes), _HEADER_BYTES_MAX):
                raise ValueError("the header is longer than the file")
            self._start = 8 + length
            self._header = orjson.loads(self._bytes[8 : self._start])
        except (OSError, ValueError, struct.error) as error:
            raise SetupRefused(f"{path} can't be read as a safetensors file: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor in its shape.  Raises SetupRefused for one that is missing, of another kind, or cut off."""
        told = self._header.get(name)
        if told is None:
            raise SetupRefused(f"{self._path} holds no tensor {name}")
        if told["dtype"] not in _DTYPES:
            raise SetupRefused(f"{self._path}: {name} is {told['dtype']}, readable are {', '.join(_DTYPES)}")
        begin, end = told["data_offsets"]
        try:
            raw = self._bytes[self._start + begin : self._start + end]
            return np.frombuffer(raw, _DTYPES[told["dtype"]]).reshape(told["shape"]).astype(np.float32, copy=False)
        except ValueError as error:
            raise SetupRefused(f"{self._path}: {name} is damaged ({error})") from error
