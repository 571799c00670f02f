"""What will one slice of lines write?  The plan of a transaction, decided line by line in the order of the file.

Pure: what the server knows goes in (`Known`, active lessons, patterns), rows to write come out.  A line sees what the lines
before it will have written.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import Experience, Json, Memory
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.moving.identity import Known, Owner, moved_changes, moved_snapshot, references_of
from memory_service.moving.lines import ConflictLine, Imported, Line, Refused, RelationLine, VersionLine
from memory_service.moving.placing import placed
from memory_service.stores.postgres.experiences import ExperienceTerms
from memory_service.stores.postgres.memories import IndexedText

GONE = ("gone", "it was erased here and can't come back")
QUOTES_GONE = ("gone", "the memory that it was learned from, and quotes, was erased here")
MISSING = ("unknown_id", "the memory or experience that it belongs to is not here")
TAKEN = ("conflict", "its id is that of something else of this user")


@dataclass(frozen=True, slots=True)
class Made:
    """A memory or experience as parsed, with what is indexed of its text.  `seed`: its id follows from its text."""

    line: Line
    thing: Memory | Experience
    text: IndexedText | ExperienceTerms
    seed: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What planning lessons and relations goes by."""

    confidence: ConfidenceSettings
    patterns_max: int
    relations_max: int


@dataclass(slots=True)
class Plan:
    """Rows to write.  `saved` replace rows that are here with lower versions; `losers` are (before, after)."""

    tenant: str
    now: datetime
    known: Known
    bounds: Bounds
    active: dict[bytes, Experience]
    patterns: dict[str, set[str]]
    same_texts: set[tuple[str, bytes]]
    seeds: set[UUID] = field(default_factory=set)
    told: Imported = field(default_factory=Imported)
    memories: dict[UUID, tuple[Memory, IndexedText]] = field(default_factory=dict)
    saved_memories: dict[UUID, tuple[Memory, IndexedText]] = field(default_factory=dict)
    lessons: dict[UUID, tuple[Experience, ExperienceTerms]] = field(default_factory=dict)
    saved_lessons: dict[UUID, tuple[Experience, ExperienceTerms]] = field(default_factory=dict)
    losers: dict[UUID, tuple[Experience, Experience]] = field(default_factory=dict)
    versions: dict[tuple[UUID, int], Json] = field(default_factory=dict)
    lesson_versions: dict[tuple[UUID, int], Json] = field(default_factory=dict)
    relations: dict[tuple[UUID, UUID, str], RelationLine] = field(default_factory=dict)
    conflicts: dict[UUID, Json] = field(default_factory=dict)

    def add(self, one: Made | Line) -> None:
        """Decide on one line."""
        if isinstance(one, Made):
            self._entity(one)
        elif isinstance(one.thing, VersionLine):
            self._version(one, one.thing)
        elif isinstance(one.thing, RelationLine):
            self._relation(one, one.thing)
        elif isinstance(one.thing, ConflictLine):
            self._conflict(one, one.thing)

    # Memories and experiences.

    def _entity(self, one: Made) -> None:
        line, thing, user_id = one.line, one.thing, one.line.user_id
        what = "memory" if isinstance(thing, Memory) else "experience"
        place = self.known.place(thing.id, user_id)
        if place is None:
            return self._refuse(line, *GONE)
        there = place.there
        if there is not None and (there.what != what or (isinstance(thing, Memory) and there.detail != thing.kind)):
            return self._refuse(line, *TAKEN)
        if place.id != thing.id:
            self.told.ids[str(thing.id)] = str(place.id)
        if (there is not None and there.version >= thing.version) or self._said_already(one):
            self.told.unchanged += 1
            return None
        if isinstance(thing, Memory):
            assert isinstance(one.text, IndexedText)
            self._memory(replace(thing, id=place.id), one.text, user_id, there, seed=one.seed)
        else:
            assert isinstance(one.text, ExperienceTerms)
            if self._quotes_erased(thing, user_id):
                return self._refuse(line, *QUOTES_GONE)
            if (problem := self._too_many_patterns(thing)) is not None:
                return self._refuse(line, "invalid", problem)
            self._lesson(replace(thing, id=place.id), one.text, user_id, there)
        self.told.imported += 1
        return None

    def _quotes_erased(self, lesson: Experience, user_id: str) -> bool:
        """A lesson that was learned, not written by hand, has its words from its first source."""
        first = lesson.source_memory_ids[:1] if lesson.rule is not None and lesson.origin != "insight" else ()
        return any(self.known.reference(one, user_id) is None for one in first)

    def _said_already(self, one: Made) -> bool:
        """A seed whose text or lesson is here under another id."""
        if not one.seed:
            return False
        if isinstance(one.text, IndexedText):
            return (one.line.user_id, one.text.content_hash) in self.same_texts
        thing = one.thing
        active = self.active.get(thing.condition_hash) if isinstance(thing, Experience) else None
        return active is not None and isinstance(thing, Experience) and active.action == thing.action

    def _memory(self, memory: Memory, text: IndexedText, user_id: str, there: Owner | None, *, seed: bool) -> None:
        known = self.known
        stored = replace(
            memory,
            superseded_by=known.reference(memory.superseded_by, user_id) if memory.superseded_by else None,
            conflict_id=known.reference(memory.conflict_id, user_id) if memory.conflict_id else None,
            related_ids=references_of(known, memory.related_ids, user_id),
            source_memory_ids=references_of(known, memory.source_memory_ids, user_id),
        )
        fresh = there is None or stored.id in self.memories
        (self.memories if fresh else self.saved_memories)[stored.id] = (stored, text)
        self.seeds |= {stored.id} if seed else set()
        known.owners[stored.id] = Owner("memory", True, user_id, stored.version, stored.kind)

    def _lesson(self, lesson: Experience, terms: ExperienceTerms, user_id: str, there: Owner | None) -> None:
        known = self.known
        stored = replace(
            lesson,
            superseded_by=known.reference(lesson.superseded_by, user_id) if lesson.superseded_by else None,
            source_memory_ids=references_of(known, lesson.source_memory_ids, user_id),
        )
        active = self.active.get(stored.condition_hash)
        rival = active if active is not None and active.id != stored.id else None
        placing = placed(stored, rival, self.now, self.bounds.confidence)
        if placing.loser is not None and rival is not None:
            self._give_way(rival, placing.loser)
        stored = placing.newcomer
        fresh = there is None or stored.id in self.lessons
        (self.lessons if fresh else self.saved_lessons)[stored.id] = (stored, terms)
        known.owners[stored.id] = Owner("experience", True, user_id, stored.version, stored.status)
        if stored.status == "active":
            self.active[stored.condition_hash] = stored
        elif active is not None and active.id == stored.id:
            del self.active[stored.condition_hash]

    def _give_way(self, rival: Experience, loser: Experience) -> None:
        """A rival of this slice is written as superseded at once, one that is here already gets a version more."""
        for pending in (self.lessons, self.saved_lessons):
            if rival.id in pending:
                terms = pending[rival.id][1]
                pending[rival.id] = (replace(rival, status="superseded", superseded_by=loser.superseded_by), terms)
                return
        self.losers[rival.id] = (rival, loser)
        self.known.owners[rival.id] = (
            replace(self.known.owners[rival.id], version=loser.version)
            if (rival.id in self.known.owners)
            else Owner("experience", True, loser.user_id, loser.version, loser.status)
        )

    def _too_many_patterns(self, lesson: Experience) -> str | None:
        wanted = {c["value"] for c in lesson.conditions if c["operator"] == "matches"}
        known = self.patterns.setdefault(lesson.user_id, set())
        if wanted - known and len(known | wanted) > self.bounds.patterns_max:
            return f"conditions: this user already has {self.bounds.patterns_max} different patterns of `matches`"
        known |= wanted
        return None

    # What refers to them.

    def _version(self, line: Line, version: VersionLine) -> None:
        there = self._there(line, version.id, version.of)
        if there is None:
            return
        one, owner = there
        # Of a memory the replaced versions are kept, of an experience the present one too.  Later ones would stand in the way
        # of changes to come.
        if version.version > owner.version - (version.of == "memory"):
            self._refuse(line, "invalid", f"version: it is at version {owner.version}")
            return
        rows = self.versions if version.of == "memory" else self.lesson_versions
        if (one, version.version) in rows:
            self.told.unchanged += 1
            return
        rows[one, version.version] = {
            "id": str(one),
            "version": version.version,
            "user_id": line.user_id,
            "at": version.at.isoformat(),
            "actor": version.actor,
            "cause": version.cause,
            "task_id": version.task_id,
            "changes": moved_changes(version.changes, self.known, line.user_id),
            "snapshot": moved_snapshot(version.snapshot, self.known, line.user_id),
        }

    def _relation(self, line: Line, relation: RelationLine) -> None:
        source = self._there(line, relation.source_id, "memory")
        target = self._there(line, relation.target_id, "memory", shared=True) if source else None
        if source is None or target is None:
            return None
        key = (source[0], target[0], relation.relation_type)
        if key in self.relations or key in self.known.relations:
            self.told.unchanged += 1
            return None
        for end, one in (("source_id", key[0]), ("target_id", key[1])):
            if self.known.relation_counts[one] >= self.bounds.relations_max:
                detail = f"{end}: this memory has {self.bounds.relations_max} relations already"
                return self._refuse(line, "invalid", detail)
        self.known.relation_counts.update(key[:2])
        self.relations[key] = relation
        return None

    def _conflict(self, line: Line, conflict: ConflictLine) -> None:
        place = self.known.place(conflict.id, line.user_id)
        if place is None:
            self._refuse(line, *GONE)
            return
        if place.there is not None and place.there.what != "conflict":
            self._refuse(line, *TAKEN)
            return
        old, new = (self._there(line, one, "memory") for one in (conflict.old_id, conflict.new_id))
        if old is None or new is None:
            return
        if place.id in self.conflicts:
            self.told.unchanged += 1
            return
        if place.id != conflict.id:
            self.told.ids[str(conflict.id)] = str(place.id)
        values: dict[str, Any] = {**asdict(conflict), "id": place.id, "old_id": old[0], "new_id": new[0]}
        self.conflicts[place.id] = {**values, "user_id": line.user_id}

    def _there(self, line: Line, old: UUID, what: str, *, shared: bool = False) -> tuple[UUID, Owner] | None:
        """What a line refers to, as it is here; refuses the line when it is not.  `shared`: the common pool will do too."""
        one = self.known.reference(old, line.user_id)
        owner = self.known.owners.get(one) if one is not None else None
        if one is None:
            self._refuse(line, *GONE)
        elif owner is None or owner.what != what or not owner.ours or not (shared or owner.user_id == line.user_id):
            self._refuse(line, *MISSING)
        else:
            return one, owner
        return None

    def _refuse(self, line: Line, code: str, detail: str) -> None:
        if any(one.number == line.number for one in self.told.refused[-1:]):
            return  # one line, one refusal
        self.told.refused.append(Refused(line.number, str(line.id) if line.id else None, code, detail))

    def seed_relations(self) -> list[tuple[UUID, UUID]]:
        """What the `related_ids` of seeds say; an exported memory brings its relations as lines of their own."""
        return [(one, other) for one in self.seeds for other in self.memories[one][0].related_ids]

    def written(self, added: Mapping[str, int]) -> Imported:
        """The result, once the database has said how many versions, relations and conflicts were new."""
        asked = {
            "versions": len(self.versions),
            "lesson_versions": len(self.lesson_versions),
            "relations": len(self.relations),
            "conflicts": len(self.conflicts),
        }
        self.told.imported += sum(added.values())
        self.told.unchanged += sum(asked.values()) - sum(added.values())
        return self.told
