"""How does a body of JSON lines become lines to import?  Each line is judged by itself; a bad one is refused with a code.

Pure and, for a full slice, tens of milliseconds long: call it in a thread.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from memory_service.api.body import Contract, parse_json, text_problem, validated
from memory_service.api.experience_schemas import WriteExperience
from memory_service.api.moving_schemas import (
    ConflictIn,
    EndLine,
    ExperienceIn,
    ExperienceVersionIn,
    HeaderLine,
    MemoryIn,
    RelationIn,
    VersionIn,
)
from memory_service.api.schemas import WriteMemory
from memory_service.domain import Caller
from memory_service.errors import Forbidden, HindsightError, InvalidFields, TooLarge
from memory_service.experience.conditions import condition_hash, parse_conditions
from memory_service.experience.store import LessonRules
from memory_service.moving.lines import FORMAT, FORMAT_VERSION, Line, Refused, Thing
from memory_service.moving.settings import MovingNumbers
from memory_service.settings import Limits
from memory_service.timestamps import time_text

BOM = b"\xef\xbb\xbf"
LEDGER_TOLERANCE = 1e-6  # the ledger's deltas are rounded to more digits than this


class UnsupportedFormat(HindsightError):
    status, code, title = 422, "unsupported_format", "The file is of a format that this version does not read"


class UnknownType(HindsightError):
    status, code, title = 422, "unknown_type", "No line of this type is known"


class Expired(HindsightError):
    status, code, title = 422, "expired", "The memory is past its end"


class LineReader:
    """Reads lines for one caller at `now`.  `user_id` is whom all lines are imported for; None: each says its own."""

    def __init__(
        self,
        caller: Caller,
        user_id: str | None,
        limits: Limits,
        rules: LessonRules,
        numbers: MovingNumbers,
        now: datetime,
    ) -> None:
        self._now = now
        self._caller = caller
        self._user_id = user_id
        self._limits = limits
        self._rules = rules
        self._numbers = numbers
        self._readers: Mapping[str, Callable[[dict[str, Any]], Thing | None]] = {
            "header": self._header,
            "end": lambda value: self._nothing(self._valid(EndLine, value)),
            "memory": self._memory,
            "experience": self._experience,
            "version": self._version,
            "experience_version": self._lesson_version,
            "relation": self._relation,
            "conflict": self._conflict,
        }

    def read(self, raw: bytes, number: int) -> Line | Refused | None:
        """One line; None for a header or an end, which say nothing to store."""
        value: Any = None
        try:
            value = parse_json(raw, self._limits)
            if not isinstance(value, dict):
                raise InvalidFields.of("line", "must be a JSON object")
            return self._line(value, number)
        except HindsightError as error:
            return Refused(number, _shown_id(value), error.code, error.detail[:500])

    def _line(self, value: dict[str, Any], number: int) -> Line | None:
        kind = value.get("type")
        if kind not in ("header", "end"):
            value = self._owned(value)
        if "type" not in value and ("content" in value or "conditions" in value):
            thing: Thing | None = self._seed(value)
        elif isinstance(kind, str) and kind in self._readers:
            thing = self._readers[kind](value)
        else:
            raise UnknownType("type: must be one of " + ", ".join(self._readers))
        return None if thing is None else Line(number, value["user_id"], thing)

    def _owned(self, value: dict[str, Any]) -> dict[str, Any]:
        """With the user that it is imported for.  Raises Forbidden for one that the key may not act for."""
        user_id = self._user_id or value.get("user_id") or self._caller.user_id
        if user_id is None:
            raise InvalidFields.of("user_id", "is required")
        if isinstance(user_id, str) and not self._caller.may_act_for(user_id):
            raise Forbidden("this API key may act for its own user only")
        return {**value, "user_id": user_id}

    def _valid(self, model: type[Any], value: dict[str, Any]) -> Any:
        return validated(model, value, self._limits)

    def _nothing(self, _line: Contract) -> None:
        return None

    def _header(self, value: dict[str, Any]) -> None:
        header = self._valid(HeaderLine, value)
        if (header.format, header.format_version) != (FORMAT, FORMAT_VERSION):
            raise UnsupportedFormat(f"this version reads {FORMAT} {FORMAT_VERSION}")

    def _memory(self, value: dict[str, Any]) -> Thing:
        body: MemoryIn = self._valid(MemoryIn, value)
        self._check_sizes(body.content, body.metadata)
        if len(body.source_memory_ids) > self._numbers.source_ids_max:
            raise InvalidFields.of("source_memory_ids", f"at most {self._numbers.source_ids_max}")
        self._check_end(body.expires_at)
        _not_itself(body.id, superseded_by=body.superseded_by, conflict_id=body.conflict_id)
        _not_itself(body.id, related_ids=body.related_ids, source_memory_ids=body.source_memory_ids)
        if body.valid_from is not None and body.valid_to is not None and body.valid_to < body.valid_from:
            raise InvalidFields.of("valid_to", "is before valid_from")
        return body.memory(self._caller.tenant)

    def _check_end(self, expires_at: datetime | None) -> None:
        """What is past its end is no memory any more: imported, nobody would see it, and the next purge would erase it."""
        if expires_at is not None and expires_at <= self._now:
            raise Expired(f"expires_at: it ended at {time_text(expires_at)}")

    def _relation(self, value: dict[str, Any]) -> Thing:
        body: RelationIn = self._valid(RelationIn, value)
        _not_itself(body.source_id, target_id=body.target_id)
        return body.line()

    def _conflict(self, value: dict[str, Any]) -> Thing:
        body: ConflictIn = self._valid(ConflictIn, value)
        _not_itself(body.old_id, new_id=body.new_id)
        decided = {"resolution": body.resolution, "resolved_at": body.resolved_at}
        for name, said in decided.items():
            if (said is None) == (body.state == "resolved"):
                raise InvalidFields.of(
                    name, f"{'is missing' if said is None else 'does not belong'} with state {body.state}"
                )
        return body.line()

    def _version(self, value: dict[str, Any]) -> Thing:
        body: VersionIn = self._valid(VersionIn, value)
        self._check_sizes(body.snapshot.content, body.snapshot.metadata)
        return body.line("memory", value["snapshot"])

    def _lesson_version(self, value: dict[str, Any]) -> Thing:
        body: ExperienceVersionIn = self._valid(ExperienceVersionIn, value)
        return body.line("experience", body.snapshot)

    def _experience(self, value: dict[str, Any]) -> Thing:
        body: ExperienceIn = self._valid(ExperienceIn, value)
        self._check_texts(body.action, body.avoid, body.rationale)
        if len(body.confidence_ledger) > self._rules.confidence.ledger_entries_max:
            raise InvalidFields.of("confidence_ledger", f"at most {self._rules.confidence.ledger_entries_max} entries")
        if abs(math.fsum(e.delta for e in body.confidence_ledger) - body.confidence) > LEDGER_TOLERANCE:
            raise InvalidFields.of("confidence_ledger", "its deltas must add up to confidence")
        _not_itself(body.id, superseded_by=body.superseded_by)
        raw = body.experience(self._caller.tenant)
        parsed = parse_conditions(raw.conditions, self._rules.limits)
        digest = condition_hash(parsed, tenant=raw.tenant, user_id=raw.user_id, task_type=raw.task_type)
        return replace(raw, conditions=tuple(one.as_json() for one in parsed), condition_hash=digest)

    def _seed(self, value: dict[str, Any]) -> Thing:
        if "content" in value:
            memory: WriteMemory = self._valid(WriteMemory, value)
            self._check_sizes(memory.content, memory.metadata or {})
            self._check_end(memory.expires_at)
            return memory.draft()
        lesson: WriteExperience = self._valid(WriteExperience, value)
        self._check_texts(lesson.action, lesson.avoid, lesson.rationale)
        parse_conditions(lesson.conditions, self._rules.limits)
        return lesson.lesson()

    def _check_sizes(self, content: str, metadata: Mapping[str, Any]) -> None:
        if len(content.encode()) > self._limits.content_bytes_max:
            raise TooLarge(f"content: above {self._limits.content_bytes_max} bytes of UTF-8")
        if len(orjson.dumps(metadata)) > self._limits.metadata_bytes_max:
            raise TooLarge(f"metadata: above {self._limits.metadata_bytes_max} bytes of JSON")

    def _check_texts(self, *texts: str | None) -> None:
        most = self._rules.numbers.text_chars_max
        if any(text is not None and len(text) > most for text in texts):
            raise TooLarge(f"action, avoid and rationale: above {most} characters")


def slices_of(body: bytes, size: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines that are not empty with their numbers from 1, `size` at a time; without copying the whole body."""
    taken: list[tuple[int, bytes]] = []
    start, number = len(BOM) if body.startswith(BOM) else 0, 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        number += 1
        line = body[start:end].strip()
        start = end + 1
        if line:
            taken.append((number, line))
        if len(taken) == size:
            yield taken
            taken = []
    if taken:
        yield taken


def _not_itself(own: UUID, **named: UUID | Sequence[UUID] | None) -> None:
    """Raises InvalidFields for a reference of a thing to itself."""
    for name, ids in named.items():
        if own == ids or (isinstance(ids, Sequence) and own in ids):
            raise InvalidFields.of(name, "can't be the thing itself")


def _shown_id(value: Any) -> str | None:
    """The id as the file has it, if it can be answered."""
    found = value.get("id", value.get("source_id")) if isinstance(value, dict) else None
    return found[:64] if isinstance(found, str) and text_problem(found) is None else None
