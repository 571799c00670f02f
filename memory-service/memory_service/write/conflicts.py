"""Does a new fact or preference contradict an older one, or update it?  Pure.

Two statements are about the same when their words are the same but for one value, and when a word among the equal ones
says that there can be only one such value (residence, port, preferred length of answers …; config/conflicts.toml).  Or when
all words are the same and one of them is negated.  Everything else is unrelated: more specific, another subject, another
time, a condition, a question.  When in doubt the answer is None: a wrong conflict costs a person's attention, a wrong update
hides what is true.  It must not look anything up.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import product
from typing import Literal

from memory_service.write.conflict_rules import Attribute, ConflictRules, Role, token_of
from memory_service.write.duplicates import normalise_text
from memory_service.write.sentences import QUOTATION

Relation = Literal["contradiction", "update"]

_SENTENCE_END = re.compile(r"[。！!；;\n]+|(?<=[?？])|\.(?=\s|$)")
_CLAUSE_END = re.compile(r"[，,]\s*")
_QUESTION = re.compile(r"[?？]\s*$")
_DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{4}\s?年(?:\s?\d{1,2}\s?月(?:\s?\d{1,2}\s?[日号])?)?|\d{1,2}\s?月\s?\d{1,2}\s?[日号]"
_ADDRESS = r"[a-z][a-z0-9+.-]{1,20}://[!-~]+|[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}|(?:~|\.{0,2})/[\w.-]+(?:/[\w.-]+)*|(?:\d{1,3}\.){3}\d{1,3}"
_NUMBER = r"v?\d+(?:[.,:]\d+)*(?![a-z0-9_])"
_WORD = r"[a-z0-9_]+(?:[-_./'][a-z0-9_]+)*"
_SCRIPT = r"[^\W\d_a-z]"
_TYPED = re.compile(rf"(?P<date>{_DATE})|(?P<address>{_ADDRESS})|(?P<number>(?<![a-z0-9_.-]){_NUMBER})", re.ASCII)
_PLAIN = re.compile(rf"(?P<word>{_WORD})|(?P<run>{_SCRIPT}+)")
_POSSESSIVE = re.compile(r"['’]s\b")
UNIT_DISTANCE = 2  # "5 developers", "5 个人": the word a number belongs to stands right behind it
_NUMERIC = frozenset({"date", "number"})
_EXACT = frozenset({"date", "number", "address"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the new text stands to the old one, and why in words for a person."""

    relation: Relation
    attribute: str
    old_value: str
    new_value: str

    @property
    def reason(self) -> str:
        if not self.old_value:
            return f"{self.attribute}: one text affirms what the other denies"
        said = "was" if self.relation == "update" else "one text says"
        then = "now" if self.relation == "update" else "the other"
        return f'{self.attribute}: {said} "{self.old_value}", {then} "{self.new_value}"'


@dataclass(frozen=True, slots=True)
class _Token:
    """`text` is compared, `shown` is quoted; `weak` ones only keep their neighbours apart."""

    text: str
    shown: str
    kind: str = "word"
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence as tokens, whether it is negated, and what else it says of itself."""

    tokens: tuple[_Token, ...]
    negated: bool
    marks: frozenset[Role]

    @property
    def strong(self) -> tuple[_Token, ...]:
        return tuple(token for token in self.tokens if not token.weak)


def relation_of(new: str, old: str, rules: ConflictRules) -> Verdict | None:
    """How `new` stands to `old`, both whole texts.  A contradiction in any sentence outweighs an update in another."""
    return relation_between(statements(new, rules), statements(old, rules), rules)


def relation_between(new: Sequence[Statement], old: Sequence[Statement], rules: ConflictRules) -> Verdict | None:
    """The same over texts that were read before."""
    found = [v for one, other in product(new, old) if (v := _compared(one, other, rules)) is not None]
    return min(found, key=lambda verdict: verdict.relation, default=None)


def statements(text: str, rules: ConflictRules) -> list[Statement]:
    """What a text states: no questions, guesses, conditions or quotations; nothing for a text that is a story."""
    if len(text) > rules.limits.text_chars_max:
        return []
    folded = normalise_text(QUOTATION.sub(lambda quoted: quoted.group().strip("\"'`“”‘’「」『』"), text))
    sentences = [s for s in _SENTENCE_END.split(folded) if s and s.strip()]
    if len(sentences) > rules.limits.sentences_max:
        return []
    found = [s for sentence in sentences if not _QUESTION.search(sentence) for s in _read(sentence, rules)]
    return [s for s in found if "doubt" not in s.marks and 0 < len(s.strong) <= rules.limits.frame_tokens_max]


def _read(sentence: str, rules: ConflictRules) -> list[Statement]:
    """The whole sentence; one that tells of a change also clause by clause ("I moved, I live in Hamburg now")."""
    whole = _statement(sentence, rules)
    clauses = _CLAUSE_END.split(sentence)
    if len(clauses) == 1 or "doubt" in whole.marks or not whole.marks & {"change", "ended"}:
        return [whole]
    return [whole, *(_statement(clause, rules) for clause in clauses)]


def _statement(sentence: str, rules: ConflictRules) -> Statement:
    tokens: list[_Token] = []
    marks: set[Role] = set()
    negations = 0
    rest = _POSSESSIVE.sub(" ", sentence)
    at = 0
    while at < len(rest):
        typed = _TYPED.match(rest, at)
        phrase = None if typed else rules.phrases.match(rest, at)
        if typed and typed.group():
            kind = typed.lastgroup or "word"
            shown = typed.group()
            tokens.append(
                _Token(re.sub(r"\s", "", shown).removeprefix("v") if kind == "number" else shown, shown, kind)
            )
            at = typed.end()
        elif phrase:
            word = rules.words[" ".join(phrase.group().split())]
            marks |= word.roles
            negations += len(word.roles & {"negation", "flip", "ended"})
            if word.token:
                tokens.append(_Token(word.token, phrase.group(), weak="weak" in word.roles))
            at = phrase.end()
        else:
            at = _plain(rest, at, tokens, rules)
    return Statement(tuple(tokens), negations % 2 == 1, frozenset(marks))


def _plain(rest: str, at: int, tokens: list[_Token], rules: ConflictRules) -> int:
    """A word that no rule names; a run of Chinese ends where a phrase begins."""
    plain = _PLAIN.match(rest, at)
    if plain is None:
        return at + 1
    if plain.lastgroup == "word":
        tokens.append(_Token(token_of(plain.group()), plain.group()))
        return plain.end()
    end = at + 1
    while end < plain.end() and not rules.phrases.match(rest, end):
        end += 1
    tokens.append(_Token(rest[at:end], rest[at:end]))
    return end


def _compared(new: Statement, old: Statement, rules: ConflictRules) -> Verdict | None:
    if "several" in new.marks or ("past" in new.marks) != ("past" in old.marks):
        return None
    changed = bool(new.marks & {"change", "ended"})
    if Counter(t.text for t in new.strong) == Counter(t.text for t in old.strong):
        if new.negated == old.negated:
            return None
        return Verdict("update" if changed else "contradiction", _shown(old.strong), "", "")
    if new.negated or old.negated:
        return None
    for frame, was, now in _differences(new, old, rules):
        attribute = next((a for a in _attributes(frame, was, now, rules)), None)
        if attribute is not None and 0 < len(was) <= rules.limits.value_tokens_max and not _contains(was, now):
            plain = attribute.changes == "plainly" or (attribute.changes == "asks" and (changed or _exact(was, now)))
            return Verdict("update" if plain else "contradiction", attribute.name, _shown(was), _shown(now))
    return None


@dataclass(frozen=True, slots=True)
class _Frame:
    """The words that both share: those before the value and those after it."""

    before: tuple[_Token, ...]
    after: tuple[_Token, ...]

    @property
    def words(self) -> tuple[_Token, ...]:
        return (*self.before, *self.after)


_Difference = tuple[_Frame, tuple[_Token, ...], tuple[_Token, ...]]


def _differences(new: Statement, old: Statement, rules: ConflictRules) -> list[_Difference]:
    """The one place where they differ (frame, old value, new value): in order, or else by kinds of value in any order."""
    aligned = _aligned(new.tokens, old.tokens)
    return [aligned] if aligned else _by_kind(new.strong, old.strong, rules)


def _aligned(new: Sequence[_Token], old: Sequence[_Token]) -> _Difference | None:
    matcher = SequenceMatcher(None, [t.text for t in old], [t.text for t in new], autojunk=False)
    found: tuple[int, int, int, int] | None = None
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal" or all(t.weak for t in (*old[i1:i2], *new[j1:j2])):
            continue
        if found is not None or not _strong(old[i1:i2]) or not _strong(new[j1:j2]):
            return None
        found = (i1, i2, j1, j2)
    if found is None:
        return None
    i1, i2, j1, j2 = found
    return _Frame(_strong(old[:i1]), _strong(old[i2:])), _strong(old[i1:i2]), _strong(new[j1:j2])


def _by_kind(new: Sequence[_Token], old: Sequence[_Token], rules: ConflictRules) -> list[_Difference]:
    """Each has one value of the same kind, and the other words are the same in another order or language."""
    for kind in sorted({k for t in old for k in rules.kinds.get(t.text, ())}):
        was = [t for t in old if kind in rules.kinds.get(t.text, ())]
        now = [t for t in new if kind in rules.kinds.get(t.text, ())]
        if len(was) == len(now) == 1 and was[0].text != now[0].text:
            frame = tuple(t for t in old if t is not was[0])
            if Counter(t.text for t in frame) == Counter(t.text for t in new if t is not now[0]):
                return [(_Frame(frame, ()), tuple(was), tuple(now))]
    return []


def _attributes(frame: _Frame, was: Sequence[_Token], now: Sequence[_Token], rules: ConflictRules) -> list[Attribute]:
    """Attributes of the frame that hold one value only, for these values; the word nearest to the value first."""
    places = [(t, 0) for t in reversed(frame.before)] + [(t, at) for at, t in enumerate(frame.after, 1)]
    return [
        attribute
        for token, behind in places
        for attribute in rules.attributes.get(token.text, ())
        if _reaches(attribute, behind) and _fits(attribute, token, frame, was, now, rules)
    ]


def _reaches(attribute: Attribute, behind: int) -> bool:
    """May the value stand `behind` words before the attribute's word (0: it stands after it)?"""
    if attribute.needs == "number":
        return behind <= UNIT_DISTANCE
    return not behind or attribute.value_first or attribute.needs in ("kind", "purpose")


def _fits(
    attribute: Attribute,
    token: _Token,
    frame: _Frame,
    was: Sequence[_Token],
    now: Sequence[_Token],
    rules: ConflictRules,
) -> bool:
    others = [t for t in frame.words if t is not token]
    one_kind = len(was) == len(now) == 1 and bool(
        rules.kinds.get(was[0].text, frozenset()) & rules.kinds.get(now[0].text, frozenset())
    )
    match attribute.needs:
        case "domain":
            return one_kind or bool(others)
        case "kind":
            return one_kind
        case "purpose":
            return one_kind and bool(others)
        case "number":
            return all(any(t.kind in _NUMERIC for t in value) for value in (was, now))
        case _:
            return True


def _contains(was: Sequence[_Token], now: Sequence[_Token]) -> bool:
    """One value is part of the other: more specific, not another."""
    if _exact(was, now):
        return False
    one, other = {t.text for t in was}, {t.text for t in now}
    if one <= other or other <= one:
        return True
    left, right = "".join(t.text for t in was), "".join(t.text for t in now)
    return not left.isascii() and (left in right or right in left)


def _exact(was: Sequence[_Token], now: Sequence[_Token]) -> bool:
    """Numbers and addresses: the world changes them, nobody holds two opinions of them."""
    return all(any(t.kind in _EXACT for t in value) for value in (was, now))


def _strong(tokens: Sequence[_Token]) -> tuple[_Token, ...]:
    return tuple(t for t in tokens if not t.weak)


def _shown(tokens: Sequence[_Token]) -> str:
    return " ".join(t.shown for t in tokens)
