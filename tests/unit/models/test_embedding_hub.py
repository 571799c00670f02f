"""Does any sentence-transformers model serve through the same port, and is a missing package said plainly?

The tests with a model run where sentence-transformers is installed and TEST_SENTENCE_MODEL names a folder with
one; neither belongs in the torch-free environment.
"""

import asyncio
import importlib.util
import os
import shutil
import sys
import threading
import tomllib
from pathlib import Path

import numpy as np
import pytest

from memory_service.errors import SetupRefused
from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.hub import prefix_of
from memory_service.models.ports import Embedder

CONFIG = Path(__file__).parents[3] / "config" / "memory.toml"
FOLDER = os.environ.get("TEST_SENTENCE_MODEL", "")
with_model = pytest.mark.skipif(
    not FOLDER or importlib.util.find_spec("sentence_transformers") is None,
    reason="needs sentence-transformers and TEST_SENTENCE_MODEL",
)


def opened(**chosen: object) -> Embedder:
    tunables = EmbeddingTunables(**tomllib.loads(CONFIG.read_text())["embedding"])
    config = EmbedderConfig(provider="sentence-transformers", **chosen)  # type: ignore[arg-type]
    return asyncio.run(open_embedder(config, tunables, lambda line: None))


def test_without_the_package_the_start_is_refused_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # makes the import fail wherever this runs

    with pytest.raises(SetupRefused, match="-m pip install 'sentence-transformers"):
        opened()


@pytest.mark.parametrize(
    ("chosen", "prompts", "model", "expected"),
    [
        (None, {}, "intfloat/multilingual-e5-small", "query: "),
        (None, {}, "/models/e5-base-v2", "query: "),
        (None, {}, "intfloat/multilingual-e5-large-instruct", ""),
        (None, {}, "BAAI/bge-m3", ""),
        (None, {"query": "Search: "}, "some/model", "Search: "),
        (None, {"query": ""}, "intfloat/e5-small", "query: "),
        ("", {"query": "Search: "}, "intfloat/e5-small", ""),
        ("mine: ", {"query": "Search: "}, "x", "mine: "),
    ],
)
def test_the_prefix_is_the_operator_s_then_the_model_s_then_the_family_s(
    chosen: str | None, prompts: dict[str, str], model: str, expected: str
) -> None:
    assert prefix_of(chosen, prompts, ("query",), model) == expected


@with_model
def test_a_model_from_a_folder_serves_unit_vectors_that_mean_something() -> None:
    async def asked(embedder: Embedder) -> tuple[int, list[int]]:
        passages = await embedder.embed_passages(["The server ran out of disk space", "She likes strawberry ice cream"])
        queries = [await embedder.embed_query(text) for text in ("why is the disk full?", "favourite dessert")]
        np.testing.assert_allclose(np.linalg.norm(passages, axis=1), 1, atol=1e-5)
        return passages.shape[1], (np.stack(queries) @ passages.T).argmax(axis=1).tolist()

    embedder = opened(model=FOLDER)
    dimensions, nearest = asyncio.run(asked(embedder))
    assert dimensions == embedder.fingerprint.dimensions
    assert nearest == [0, 1]
    asyncio.run(embedder.close())


@with_model
def test_prefixes_change_the_vector_and_the_fingerprint() -> None:
    plain, prefixed = opened(model=FOLDER), opened(model=FOLDER, query_prefix="query: ")

    assert plain.fingerprint != prefixed.fingerprint
    left, right = (asyncio.run(embedder.embed_query("cat")) for embedder in (plain, prefixed))
    assert left @ right < 0.999


@with_model
def test_chunks_fit_this_model_s_own_window_and_keep_the_last_phrase() -> None:
    embedder = opened(model=FOLDER)
    pieces = embedder.chunks("".join(f"The quick fox jumps over build {n}. " for n in range(1500)) + "zebra-quantum 77")

    assert len(pieces) > 20
    assert "zebra-quantum 77" in pieces[-1]
    assert max(embedder.count_tokens(piece) for piece in pieces) <= 510


@with_model
def test_counting_and_embedding_at_once_do_not_disturb_each_other() -> None:
    embedder = opened(model=FOLDER)
    failures: list[Exception] = []

    def count() -> None:
        for _ in range(50):
            try:
                embedder.count_tokens("some words to count " * 50)
            except Exception as error:
                failures.append(error)

    async def embed() -> None:
        await asyncio.gather(
            *(embedder.embed_passages([f"text {number} " * (number + 1)]) for number in range(12)),
            *(embedder.embed_query(f"question {number}") for number in range(12)),
        )

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(embed())
    for thread in threads:
        thread.join(60)
    assert failures == []


@with_model
def test_a_changed_folder_is_another_revision(tmp_path: Path) -> None:
    copied = tmp_path / "model"
    shutil.copytree(FOLDER, copied)
    before = opened(model=str(copied)).fingerprint
    (copied / "README.md").write_text("changed")

    assert opened(model=str(copied)).fingerprint.revision != before.revision


@with_model
def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupRefused, match="could not be loaded"):
        opened(model=str(tmp_path / "nothing"))
