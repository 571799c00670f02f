"""How does a BERT model from a folder serve without torch?

Its weights become an ONNX graph once, kept under the models folder; ONNX Runtime runs it as it runs the bundled model.  Against
torch through sentence-transformers, all-MiniLM-L6-v2 takes a third of the time a query and a third of the memory (docs/BENCHMARKS.md),
with the same vectors to 1e-5.  What is in the folder is for `bert_folder.py` to say.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory_service.errors import SetupRefused
from memory_service.models.bert_folder import BertFolder
from memory_service.models.bert_onnx import EMBEDDING, OPSET, encoded, first_pooled, inputs, mean_pooled
from memory_service.models.built_folder import Progress, ensure_folder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.hub import PASSAGE_PROMPTS, QUERY_PROMPTS, folder_digest, prefix_of
from memory_service.models.onnx_session import encode_packed, open_session
from memory_service.models.onnx_wire import ExternalData, OnnxGraph
from memory_service.models.ports import EmbeddingFingerprint, Vector

VECTORS_VERSION = 1
"""Part of the fingerprint.  Raise it when the vectors of a model change by more than 1e-5: whoever stored some must reembed then."""

GRAPH_VERSION = 2
"""Raise it whenever this or `bert_onnx.py` changes what is made: models built before are then built anew."""

_MODEL, _WEIGHTS = "model.onnx", "weights.bin"


class OnnxFolderModel:
    """A LocalModel.  Blocks while it is made.  Raises SetupRefused when folder or package can't be used."""

    def __init__(self, config: EmbedderConfig, tunables: EmbeddingTunables, progress: Progress) -> None:
        if not config.model:
            raise SetupRefused(
                "HINDSIGHT_EMBEDDING_PROVIDER=onnx needs HINDSIGHT_EMBEDDING_MODEL, the folder of a model"
            )
        folder = Path(config.model).expanduser()
        self._bert = BertFolder(folder)
        if config.dimensions not in (None, self._bert.shape.hidden):
            raise SetupRefused(
                f"the model in {folder} has {self._bert.shape.hidden} dimensions, not {config.dimensions}"
            )
        self._tunables = tunables
        digest = folder_digest(folder)
        self._tokenizer = _tokenizer(folder / "tokenizer.json")
        query = prefix_of(config.query_prefix, self._bert.prompts, QUERY_PROMPTS, config.model)
        passage = prefix_of(config.passage_prefix, self._bert.prompts, PASSAGE_PROMPTS, config.model)
        revision = f"sha256-{digest[:16]}-onnx-v{VECTORS_VERSION}"
        self._fingerprint = EmbeddingFingerprint(config.model, revision, self._bert.shape.hidden, query, passage)
        built = config.model_dir.expanduser() / f"onnx-{digest[:16]}-v{GRAPH_VERSION}"
        facts = {"model": str(folder)}
        ensure_folder(built, (_MODEL, _WEIGHTS), self._make, facts, progress, tunables.build_lock_timeout_s)
        self._session = open_session(built / _MODEL)

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self._fingerprint

    @property
    def window_tokens(self) -> int:
        return self._bert.window_tokens

    def token_starts(self, text: str) -> Sequence[int]:
        return [start for start, _ in self._tokenizer.encode(text, add_special_tokens=False).offsets]

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode(self, texts: Sequence[str]) -> Vector:
        window = self._bert.window_tokens
        ids = []
        for text in texts:  # not encode_batch, which starts threads of its own
            whole = self._tokenizer.encode(text).ids
            ids.append(whole if len(whole) <= window else [*whole[: window - 1], whole[-1]])  # the last one is [SEP]
        return encode_packed(self._session, ids, self._bert.pad, self._bert.shape.hidden, self._tunables)

    def _make(self, _scratch: Path) -> Mapping[str, bytes | bytearray]:
        bert, external = self._bert, ExternalData(_WEIGHTS)
        bert.open_weights()
        graph = OnnxGraph("bert", OPSET, external)
        ids, mask = inputs(graph)
        table = graph.constant("words.table", bert.matrix("emb.word", bert.shape.hidden))
        hidden = encoded(graph, bert, graph.node("Gather", (table, ids), "words"), ids, mask)
        if bert.pooling == "mean":
            mean_pooled(graph, hidden, mask)
        else:
            first_pooled(graph, hidden)
        graph.output(EMBEDDING, "float32", ("batch", bert.shape.hidden))
        return {_WEIGHTS: external.content, _MODEL: graph.serialised()}


def _tokenizer(path: Path) -> Any:
    try:
        package = importlib.import_module("tokenizers")
    except ImportError as error:
        raise SetupRefused(
            "HINDSIGHT_EMBEDDING_PROVIDER=onnx needs a package that is not installed. "
            f"Run: {sys.executable} -m pip install 'tokenizers>=0.23,<1'"
        ) from error
    try:
        tokenizer = package.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception for a bad file
        raise SetupRefused(f"{path} can't be read: {error}") from error
    tokenizer.no_truncation()  # counting and cutting need whole texts; `encode` cuts to the window
    tokenizer.no_padding()
    return tokenizer
