"""Which memories does a store of a given size hold, and what do their users ask?

Everything comes from a fixed seed: made-up words whose frequencies follow Zipf's law, users whose shares do too, texts about a
few topics of their user, and queries made of a memory's own words.  A vector is the sum of its words' vectors as HashEmbedder
makes them, so texts that share words are near each other and the service's stand-in embedder finds them.  Pure, but for ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import numpy.typing as npt

from memory_service.domain import Entity, Kind, Memory, new_id
from memory_service.models.offline import HashEmbedder

SEED = 20261130
TENANT = "default"
WORDS = 20_000
USERS_MEMORIES = 100  # memories of a user on average
TOPICS = 12  # of a user
TOPIC_WORDS = 60
WORDS_MIN, WORDS_MAX = 10, 30  # of a text
SESSION = 20  # memories of one user in a row; other users' come between
DAYS = 730
OWNER = "owner"
_ONSETS = ("b", "ch", "d", "f", "g", "h", "k", "l", "m", "n", "p", "qu", "r", "s", "t", "v", "w", "z", "br", "st")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_ENDS = ("b", "d", "g", "k", "l", "m", "n", "p", "r", "t")
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Question:
    """A query of a user, made of the words of one of its memories."""

    user_id: str
    query: str
    source: int  # number of that memory among the user's


@dataclass(frozen=True)
class Batch:
    """Memories and one vector each."""

    memories: list[Memory]
    vectors: Floats


def shares(total: int) -> dict[str, int]:
    """How many memories each user has in a store of `total`: the one of rank r has a share of 1/r (Zipf)."""
    users = max(10, total // USERS_MEMORIES)
    weights = 1 / np.arange(1, users + 1)
    counts = np.maximum(1, np.floor(total * weights / weights.sum())).astype(int)
    counts[0] += total - counts.sum()
    return {f"user-{rank:05d}": int(count) for rank, count in enumerate(counts, start=1)}


def one_owner(total: int) -> dict[str, int]:
    """One user has nine tenths, the others share the rest as in `shares`."""
    others = shares(total // 10)
    return {OWNER: total - sum(others.values()), **others}


class Corpus:
    """Memory n of a user is the same however many there are, so a store can grow."""

    def __init__(self, embedder: HashEmbedder, now: datetime) -> None:
        self._embedder = embedder
        self._now = now
        chance = np.random.default_rng(SEED)
        self.words = _made_up_words(chance)

    @cached_property
    def _word_vectors(self) -> Floats:
        """(words, dimensions): what each word adds to a text's vector, as HashEmbedder weighs it."""
        rows = [self._embedder._vector(word) for word in self.words]
        return np.stack(rows)

    def texts(self, user_id: str, first: int, count: int) -> Integers:
        """(count, WORDS_MAX) numbers of words, -1 for none.  Half of a text's words are its topic's."""
        return self._rows(user_id, first, count)[0]

    def _rows(self, user_id: str, first: int, count: int) -> tuple[Integers, Integers]:
        """Words and draws (see _block) of a user's memories number `first` to `first + count`."""
        blocks = [self._block(user_id, block) for block in range(first // SESSION, (first + count - 1) // SESSION + 1)]
        skipped = first - first // SESSION * SESSION
        words, drawn = (np.concatenate(parts)[skipped : skipped + count] for parts in zip(*blocks, strict=True))
        return words, drawn

    def _block(self, user_id: str, block: int) -> tuple[Integers, Integers]:
        """Words, and ten numbers below 1000 that the other fields are made of, of SESSION memories."""
        user = _number_of(user_id)
        topics = np.random.default_rng([SEED, user]).integers(0, WORDS, (TOPICS, TOPIC_WORDS))
        chance = np.random.default_rng([SEED, user, block])
        half = WORDS_MAX // 2
        topical = topics[chance.integers(0, TOPICS, (SESSION, 1)), chance.integers(0, TOPIC_WORDS, (SESSION, half))]
        # Rank with probability ~ 1/rank, by inverting its logarithmic distribution.
        general = np.exp(chance.random((SESSION, half)) * np.log(WORDS)).astype(np.int64) - 1
        words = np.concatenate([topical, general], axis=1)
        words = np.take_along_axis(words, np.argsort(chance.random(words.shape), axis=1), axis=1)
        words[np.arange(WORDS_MAX) >= chance.integers(WORDS_MIN, WORDS_MAX + 1, (SESSION, 1))] = -1
        return words, chance.integers(0, 1_000, (SESSION, 10))

    def batches(self, present: set[tuple[str, str]], want: dict[str, int], size: int) -> Iterator[Batch]:
        """What is missing of a store, at most `size` memories at once: sessions of all users mixed, as they come in life.

        `present`: (user_id, session_id) of what is there.
        """
        sessions = [
            (user_id, first, min(SESSION, count - first))
            for user_id, count in want.items()
            for first in range(0, count, SESSION)
            if (user_id, session_id(first)) not in present
        ]
        np.random.default_rng(SEED).shuffle(sessions)
        for start in range(0, len(sessions), size // SESSION):
            some = sessions[start : start + size // SESSION]
            yield _joined([self._batch(str(user_id), int(first), int(count)) for user_id, first, count in some])

    def _batch(self, user_id: str, first: int, count: int) -> Batch:
        words, drawn = self._rows(user_id, first, count)
        vectors = np.zeros((count, self._word_vectors.shape[1]), np.float32)
        for column in words.T:
            present = column >= 0
            vectors[present] += self._word_vectors[column[present]]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        memories = [
            self._memory(user_id, first + at, row, draws)
            for at, (row, draws) in enumerate(zip(words, drawn.tolist(), strict=True))
        ]
        return Batch(memories, vectors)

    def _memory(self, user_id: str, number: int, row: Integers, drawn: list[int]) -> Memory:
        text = self.text_of(row)
        at = self._now - timedelta(days=DAYS * (drawn[8] * 1_000 + drawn[9]) / 1_000_000)
        kind: Kind = "semantic" if drawn[0] < 300 else "episodic"
        made = Memory(
            id=new_id(), tenant=TENANT, kind=kind, user_id=user_id, content=text, summary=text, created_at=at, updated_at=at,
            occurred_at=at, heat_at=self._now, importance=drawn[1] / 1_000, tags=(f"tag-{drawn[2] % 40}", f"tag-{drawn[3] % 40}"),
            category=f"category-{drawn[4] % 12}", entities=(Entity(f"name-{drawn[5]}"),), session_id=session_id(number),
        )  # fmt: skip
        if kind == "semantic":
            return made
        calls = ({"tool": f"tool-{drawn[6] % 20}", "arguments": {"n": drawn[7]}, "status": "success"},)
        return replace(made, event_type=f"event-{drawn[4] % 8}", tool_calls=calls if drawn[6] < 200 else ())

    def text_of(self, row: Integers) -> str:
        return " ".join(self.words[at] for at in row if at >= 0)

    def question(self, chance: np.random.Generator, user_id: str, count: int) -> Question:
        """Three to six words of one of the user's memories, in their order: common ones and rare ones as they come."""
        number = int(chance.integers(count))
        row = self.texts(user_id, number, 1)[0]
        row = row[row >= 0]
        chosen = np.sort(chance.choice(len(row), min(len(row), int(chance.integers(3, 7))), replace=False))
        return Question(user_id, self.text_of(row[chosen]), number)


def session_id(number: int) -> str:
    """Of a user's memory of that number."""
    return f"session-{number // SESSION}"


def by_weight(chance: np.random.Generator, want: dict[str, int], count: int) -> list[str]:
    """Users as often as they have memories: who has more asks more."""
    weights = np.array(list(want.values()), float)
    return [str(name) for name in chance.choice(list(want), count, p=weights / weights.sum())]


def uniformly(chance: np.random.Generator, want: dict[str, int], count: int) -> list[str]:
    return [str(name) for name in chance.choice(list(want), count)]


def now() -> datetime:
    return datetime.now(UTC)


def _number_of(user_id: str) -> int:
    return 0 if user_id == OWNER else int(user_id.rpartition("-")[2])


def _made_up_words(chance: np.random.Generator) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < WORDS:
        syllables = [chance.choice(_ONSETS) + chance.choice(_VOWELS) for _ in range(int(chance.integers(2, 4)))]
        found["".join(syllables) + str(chance.choice(_ENDS))] = None
    return list(found)


def _joined(parts: list[Batch]) -> Batch:
    memories = [memory for part in parts for memory in part.memories]
    return Batch(memories, np.concatenate([part.vectors for part in parts]))
