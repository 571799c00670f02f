"""How does the bundled multilingual-e5-small run?

Opens the model that `e5_build.py` made with ONNX Runtime; no torch.  Run as
`python -m memory_service.models.bundled --build [--model-dir DIR]` it builds the model ahead of the first start and
prints its folder.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memory_service.errors import SetupRefused
from memory_service.models.e5_build import VECTORS_VERSION, BuiltModel, ensure_built
from memory_service.models.e5_source import REQUIREMENT
from memory_service.models.e5_tokenizer import E5Tokenizer
from memory_service.models.e5_weights import WEIGHTS_SHA256
from memory_service.models.embedding_settings import EmbeddingTunables
from memory_service.models.onnx_session import encode_packed, open_session
from memory_service.models.ports import EmbeddingFingerprint, Vector

MODEL = "intfloat/multilingual-e5-small"
QUERY_PREFIX, PASSAGE_PREFIX = "query: ", "passage: "  # the model was trained with them; its card asks for them
_WINDOW_TOKENS = 512


class BundledModel:
    """A LocalModel.  The session and the tokenizer are safe to share between threads."""

    dimensions = 384

    def __init__(self, built: BuiltModel, tunables: EmbeddingTunables, query_prefix: str, passage_prefix: str) -> None:
        self._tunables = tunables
        vocabulary = built.vocabulary()
        self._bos, self._eos, self._pad = vocabulary.bos, vocabulary.eos, vocabulary.pad
        with ThreadPoolExecutor(1) as beside:  # 0.4 s in ONNX Runtime, without the interpreter's lock
            session = beside.submit(open_session, built.model)
            self._tokenizer = E5Tokenizer(vocabulary)
            self._session = session.result()
        revision = f"{REQUIREMENT.replace('==', '-')}-q4-{WEIGHTS_SHA256[:12]}-v{VECTORS_VERSION}"
        self._fingerprint = EmbeddingFingerprint(MODEL, revision, self.dimensions, query_prefix, passage_prefix)

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self._fingerprint

    @property
    def window_tokens(self) -> int:
        return _WINDOW_TOKENS

    def token_starts(self, text: str) -> Sequence[int]:
        return self._tokenizer.starts(text)

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.ids(text))

    def encode(self, texts: Sequence[str]) -> Vector:
        ids = [[self._bos, *self._tokenizer.ids(text)[: _WINDOW_TOKENS - 2], self._eos] for text in texts]
        return encode_packed(self._session, ids, self._pad, self.dimensions, self._tunables)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m memory_service.models.bundled", description="The bundled embedding model."
    )
    parser.add_argument(
        "--build", action="store_true", required=True, help="download and build the model if it is not there"
    )
    parser.add_argument("--model-dir", type=Path, default=default_model_dir(), help="default: %(default)s")
    parser.add_argument(
        "--timeout", type=float, default=1200.0, help="seconds for the download, and for another build to end"
    )
    chosen = parser.parse_args(arguments)
    try:
        built = ensure_built(
            chosen.model_dir,
            lambda line: print(line, file=sys.stderr, flush=True),
            download_timeout_s=chosen.timeout,
            lock_timeout_s=chosen.timeout,
        )
    except SetupRefused as refused:
        print(refused, file=sys.stderr)
        return 1
    print(built.folder)
    return 0


def default_model_dir() -> Path:
    home = os.environ.get("HINDSIGHT_HOME", "~/.hindsight")
    return Path(os.environ.get("HINDSIGHT_MODEL_DIR") or Path(home) / "models").expanduser()


if __name__ == "__main__":
    sys.exit(main())
