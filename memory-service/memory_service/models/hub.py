"""How does any sentence-transformers model serve, by hub name or folder, on CPU or GPU?

A LocalModel for `local.LocalEmbedder`.  The package is an extra (torch is 2 GB) and imported only when this provider is
chosen.
"""

import copy
import hashlib
import importlib
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from memory_service.errors import SetupRefused
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.file_digest import sha256_of
from memory_service.models.ports import EmbeddingFingerprint, Vector

DEFAULT_MODEL = "intfloat/multilingual-e5-small"
_WINDOW_TOKENS_UNSAID = 512  # BERT's, for the few models that do not state theirs
QUERY_PROMPTS, PASSAGE_PROMPTS = ("query",), ("passage", "document")


class HubModel:
    """Blocks while it loads.  Raises SetupRefused when package or model can't be had."""

    def __init__(self, config: EmbedderConfig, tunables: EmbeddingTunables) -> None:
        name = config.model or DEFAULT_MODEL
        self._model = _loaded(name, config)
        self._rows = tunables.batch_rows_max
        # Fast tokenizers raise "Already borrowed" when two threads use one while padding is being set: encode has the
        # model's own to itself, counting has a copy, and each has a lock.
        self._encoding, self._counting = threading.Lock(), threading.Lock()
        self._tokenizer = copy.deepcopy(self._model.tokenizer)
        prompts = getattr(self._model, "prompts", None) or {}
        query = prefix_of(config.query_prefix, prompts, QUERY_PROMPTS, name)
        passage = prefix_of(config.passage_prefix, prompts, PASSAGE_PROMPTS, name)
        dimensions = int(self.encode(["dimensions"]).shape[1])
        self._fingerprint = EmbeddingFingerprint(name, _revision(name, config, self._model), dimensions, query, passage)

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self._fingerprint

    @property
    def window_tokens(self) -> int:
        return int(self._model.max_seq_length or _WINDOW_TOKENS_UNSAID)

    def token_starts(self, text: str) -> Sequence[int]:
        with self._counting:
            encoding = self._tokenizer(
                text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
            )
        return [start for start, _ in encoding["offset_mapping"]]

    def count_tokens(self, text: str) -> int:
        return len(self.token_starts(text))

    def encode(self, texts: Sequence[str]) -> Vector:
        with self._encoding:
            vectors = self._model.encode(
                list(texts),
                prompt="",  # the prefix is in the text; None would add the model's default prompt
                batch_size=self._rows,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.asarray(vectors, np.float32)


def _loaded(name: str, config: EmbedderConfig) -> Any:
    try:
        package = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise SetupRefused(
            "HINDSIGHT_EMBEDDING_PROVIDER=sentence-transformers needs a package that is not installed. "
            f"Run: {sys.executable} -m pip install 'sentence-transformers>=6.2,<7'"
        ) from error
    with suppress(ImportError, AttributeError):  # its progress bars would stand between the JSON lines of the log
        importlib.import_module("transformers.utils.logging").disable_progress_bar()
    try:
        return package.SentenceTransformer(
            name, revision=config.revision, device=config.device, truncate_dim=config.dimensions
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise SetupRefused(
            f"The embedding model {name} could not be loaded: {str(error).strip().splitlines()[0]}\n"
            "HINDSIGHT_EMBEDDING_MODEL takes a name on the model hub, which must be reachable once, or a folder."
        ) from error


def prefix_of(chosen: str | None, prompts: Mapping[str, str], names: Sequence[str], model: str) -> str:
    """The operator's word first, then what the model was published with, then what the E5 family's card asks for."""
    if chosen is not None:
        return chosen
    for name in names:
        if prompts.get(name):
            return prompts[name]
    base = Path(model).name.lower()
    is_e5 = base.startswith(("e5-", "multilingual-e5-")) and "instruct" not in base
    return f"{names[0]}: " if is_e5 else ""


def _revision(name: str, config: EmbedderConfig, model: Any) -> str:
    """What tells two states of one model apart: a digest of a folder's files, else the hub's commit, else what was asked."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return f"sha256-{folder_digest(folder)[:16]}"
    commit = getattr(getattr(getattr(model[0], "auto_model", None), "config", None), "_commit_hash", None)
    return str(commit or config.revision or "main")


def folder_digest(folder: Path) -> str:
    """sha256 over the names and contents of all files."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts):
        whole.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        whole.update(bytes.fromhex(sha256_of(path)))
    return whole.hexdigest()
