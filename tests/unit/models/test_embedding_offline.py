"""Is the twin without a model deterministic and honest, and do its distances mean something?"""

import asyncio
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from memory_service.errors import SetupRefused
from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.offline import HashEmbedder
from memory_service.models.ports import Vector
from memory_service.models.windows import WindowRule

CONFIG = Path(__file__).parents[3] / "config" / "memory.toml"
RELATED = [
    ("The deployment failed with a timeout", "deploy fails: timeout while deploying"),
    ("Restart the nginx server after changing its config", "nginx config was changed, so restart the server"),
    ("User prefers dark mode in the editor", "the editor's dark mode is what the user prefers"),
    ("数据库迁移失败了", "昨天的数据库迁移为什么失败"),
    ("用户喜欢深色主题", "用户更喜欢深色的主题"),
]


def tunables() -> EmbeddingTunables:
    return EmbeddingTunables(**tomllib.loads(CONFIG.read_text())["embedding"])


def twin(dimensions: int = 384) -> HashEmbedder:
    return HashEmbedder(dimensions, WindowRule(40, 5, 5))


def passages(*texts: str, dimensions: int = 384) -> Vector:
    return asyncio.run(twin(dimensions).embed_passages(texts))


def test_related_texts_are_nearer_than_every_unrelated_one() -> None:
    left = passages(*(pair[0] for pair in RELATED))
    right = passages(*(pair[1] for pair in RELATED))
    similarity = left @ right.T

    assert similarity.argmax(axis=1).tolist() == list(range(len(RELATED)))
    assert similarity.diagonal().min() > similarity[~np.eye(len(RELATED), dtype=bool)].max() + 0.1


@pytest.mark.parametrize("text", ["", "  \n", "!!!", "a", "\ud800", "\x00", "😀", "word " * 5000])
@pytest.mark.parametrize("dimensions", [1, 7, 384])
def test_any_text_gives_a_unit_vector_of_any_dimension(text: str, dimensions: int) -> None:
    (vector,) = passages(text, dimensions=dimensions)

    assert vector.shape == (dimensions,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_another_process_makes_the_same_vector() -> None:
    program = (
        "import asyncio\nfrom memory_service.models.offline import HashEmbedder\n"
        "from memory_service.models.windows import WindowRule\n"
        "print(asyncio.run(HashEmbedder(16, WindowRule(40, 5, 5)).embed_query('Grüße 你好 x1')).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == str(asyncio.run(twin(16).embed_query("Grüße 你好 x1")).tolist())


def test_case_and_width_do_not_matter_but_words_do() -> None:
    same, folded, other = passages("ERROR ４０４", "error 404", "error 405")

    assert same @ folded == pytest.approx(1, abs=1e-5)
    assert same @ other < 0.9


def test_its_fingerprint_names_it() -> None:
    assert "hash" in twin().fingerprint.model
    assert twin(7).fingerprint != twin(8).fingerprint


def test_no_passages_give_no_rows() -> None:
    assert passages().shape == (0, 384)


def test_the_provider_hash_opens_it_with_the_configured_dimensions() -> None:
    async def opened() -> tuple[int, list[str]]:
        embedder = await open_embedder(EmbedderConfig(provider="hash", dimensions=12), tunables(), print)
        pieces = embedder.chunks("word " * 2000 + "the very last phrase")
        await embedder.close()
        return embedder.fingerprint.dimensions, pieces

    dimensions, pieces = asyncio.run(opened())
    assert dimensions == 12
    assert len(pieces) > 4
    assert pieces[-1].endswith("the very last phrase")


@pytest.mark.parametrize(
    ("config", "advice"),
    [
        (EmbedderConfig(provider="nonsense"), "sentence-transformers"),
        (EmbedderConfig(provider="openai"), "HINDSIGHT_EMBEDDING_BASE_URL"),
        (EmbedderConfig(provider="bundled", model="BAAI/bge-m3"), "HINDSIGHT_EMBEDDING_PROVIDER=sentence-transformers"),
        (EmbedderConfig(provider="bundled", dimensions=99), "384"),
    ],
)
def test_a_configuration_that_can_not_work_is_refused_with_advice(config: EmbedderConfig, advice: str) -> None:
    with pytest.raises(SetupRefused, match=advice):
        asyncio.run(open_embedder(config, tunables(), print))
