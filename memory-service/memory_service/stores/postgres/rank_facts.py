"""What does ranking need to know of hundreds of candidates, and how does it come out of Postgres without costing hundreds of rows?

One row of packed columns, as in keyword_hits.py: numbers that numpy reads as they are, and arrays of texts.  Nothing is
ranked here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
from psycopg.rows import TupleRow

from memory_service.domain import Key
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.pool import Connection, fetch_one, uuid_array

# strpos, since a regular expression costs ten times as much a row.
ASKS = "strpos(right(m.content, %(tail_chars)s), '?') > 0 OR strpos(right(m.content, %(tail_chars)s), '\uff1f') > 0"
NUMBERS = (
    ("id", "V16", "uuid_send(m.id)"),
    ("version", ">i4", "int4send(m.version)"),
    ("occurred_at", ">i8", "timestamptz_send(m.occurred_at)"),
    ("heat_at", ">i8", "timestamptz_send(m.heat_at)"),
    ("importance", ">f8", "float8send(m.importance)"),
    ("confidence", ">f8", "float8send(m.confidence)"),
    ("heat", ">f8", "float8send(m.heat)"),
    ("semantic", "?", "boolsend(m.kind = 'semantic')"),
    ("pinned", "?", "boolsend(m.pinned)"),
    ("asks", "?", f"boolsend({ASKS})"),
)
ROW = np.dtype([(name, form) for name, form, _ in NUMBERS])
PACKED = f"""string_agg({" || ".join(sent for _, _, sent in NUMBERS)}, ''::bytea), array_agg(m.conflict_id),
    array_agg(left(m.content, %(head_chars)s)), array_agg(m.user_id), array_agg(m.session_id),
    array_agg(CASE jsonb_typeof(m.metadata -> 'speaker') WHEN 'string' THEN left(m.metadata ->> 'speaker', 100) END),
    array_agg(CASE jsonb_typeof(m.metadata -> 'role') WHEN 'string' THEN left(m.metadata ->> 'role', 100) END)"""
BESIDE = """SELECT t.id AS turn, {follows} AS follows, m.*
    FROM unnest(%(ids)s::uuid[], %(users)s::text[], %(sessions)s::text[], %(times)s::timestamptz[]) AS t(id, user_id, session_id, at)
    CROSS JOIN LATERAL (
        SELECT m.* FROM memory m WHERE m.user_id = t.user_id AND m.session_id = t.session_id
        AND (m.occurred_at, m.id) {sign} (t.at, t.id) AND {filter} ORDER BY m.occurred_at {order}, m.id {order} LIMIT 1) AS m"""
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # Postgres sends microseconds since then
MICROSECOND = timedelta(microseconds=1)


class Utterance(NamedTuple):
    """A memory as the words of somebody; of its text only the beginning.

    `asks`: a question mark near its end.  `speaker` and `role` are those of its metadata, None unless they are texts.
    """

    id: Key
    head: str
    occurred_at: datetime
    asks: bool = False
    user_id: str = ""
    session_id: str | None = None
    speaker: str | None = None
    role: str | None = None

    @property
    def is_turn(self) -> bool:
        """Somebody says it, in a session."""
        return self.session_id is not None and (self.speaker or self.role) is not None


@dataclass(frozen=True, slots=True)
class Beside:
    """The memory `id` comes before `turn`, or after it when `follows`."""

    turn: Key
    follows: bool
    id: Key


class RankFacts(Mapping[Key, Utterance]):
    """Of live memories, as columns: what is known of `ids[n]` is number n of each.  As a mapping it makes the utterances.

    `numbers` are rows of ROW, times in microseconds since EPOCH.  `heads` are the beginnings of the texts,
    which tell the script.
    """

    def __init__(
        self,
        numbers: npt.NDArray[np.void],
        conflicts: Sequence[UUID | None],
        heads: Sequence[str],
        users: Sequence[str],
        sessions: Sequence[str | None],
        speakers: Sequence[str | None],
        roles: Sequence[str | None],
    ) -> None:
        self.ids: list[Key] = numbers["id"].tolist()
        self.places = {memory_id: place for place, memory_id in enumerate(self.ids)}
        self.numbers = numbers
        self.asks: list[bool] = numbers["asks"].tolist()
        self.conflicts = conflicts
        self.heads = heads
        self.users = users
        self.sessions = sessions
        self.speakers = speakers
        self.roles = roles

    @classmethod
    def unpacked(cls, row: Sequence[Any] | None) -> "RankFacts":
        """From the columns of PACKED."""
        numbers, *others = row if row is not None else [None] * 7
        if numbers is None:
            return NOTHING_KNOWN
        return cls(np.frombuffer(numbers, ROW), *others)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.ids)

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self.places

    def __getitem__(self, memory_id: Key) -> Utterance:
        n = self.places[memory_id]
        at = EPOCH + timedelta(microseconds=int(self.numbers["occurred_at"][n]))
        return Utterance(
            memory_id, self.heads[n], at, self.asks[n], self.users[n], self.sessions[n], self.speakers[n], self.roles[n]
        )

    def turns(self, ids: Sequence[Key], limit: int) -> list[Utterance]:
        """The first turns among `ids`."""
        sessions = self.sessions
        in_sessions = (i for i in ids if i in self.places and sessions[self.places[i]] is not None)
        return list(islice((one for i in in_sessions if (one := self[i]).is_turn), limit))

    def with_others(self, others: "RankFacts") -> "RankFacts":
        """These, and those of the others that are not among them."""
        if not self.ids:
            return others
        new = [place for memory_id, place in others.places.items() if memory_id not in self.places]
        if not new:
            return self
        columns = ("conflicts", "heads", "users", "sessions", "speakers", "roles")
        both = [[*getattr(self, name), *(getattr(others, name)[n] for n in new)] for name in columns]
        return RankFacts(np.concatenate([self.numbers, others.numbers[new]]), *both)


NOTHING_KNOWN = RankFacts(np.empty(0, ROW), (), (), (), (), (), ())


def microseconds(moment: datetime) -> int:
    """As the numbers have times."""
    return (moment - EPOCH) // MICROSECOND


async def rank_facts(
    connection: Connection, ids: Sequence[Key], chosen: SqlFilter, head_chars: int, tail_chars: int
) -> RankFacts:
    """Those of `ids` that pass the filter, as they are now, in no order.

    Of a text the first `head_chars` and whether the last `tail_chars` ask something.
    """
    row = await fetch_one(
        connection,
        f"SELECT {PACKED} FROM memory m WHERE m.id = ANY(%(ids)s::uuid[]) AND {chosen.sql_checked}",
        {**chosen.parameters, "ids": uuid_array(ids), "head_chars": head_chars, "tail_chars": tail_chars},
    )
    return RankFacts.unpacked(row)


async def turns_beside(
    connection: Connection, turns: Sequence[Utterance], chosen: SqlFilter, head_chars: int, tail_chars: int
) -> tuple[list[Beside], RankFacts]:
    """The memory before and the one after each of these in its session, by time and then id, of those that pass the filter."""
    sides = [("<", "DESC", "false"), (">", "ASC", "true")]
    beside = " UNION ALL ".join(
        f"({BESIDE.format(sign=sign, order=order, follows=follows, filter=chosen.sql)})"
        for sign, order, follows in sides
    )
    row: TupleRow | None = await fetch_one(
        connection,
        f"SELECT array_agg(uuid_send(m.turn)), array_agg(m.follows), {PACKED} FROM ({beside}) AS m",
        {
            **chosen.parameters,
            "ids": uuid_array(turn.id for turn in turns),
            "users": [turn.user_id for turn in turns],
            "sessions": [turn.session_id for turn in turns],
            "times": [turn.occurred_at for turn in turns],
            "head_chars": head_chars,
            "tail_chars": tail_chars,
        },
    )
    if row is None or row[0] is None:
        return [], NOTHING_KNOWN
    facts = RankFacts.unpacked(row[2:])
    return [Beside(*one) for one in zip(row[0], row[1], facts.ids, strict=True)], facts
