"""Where do two statements differ, and can only one of the two values be true?  Pure.

Three ways to find the one place where they differ: word by word in order; by a value of one kind (language, theme …) with the
other words the same in any order or language; by a number, date or address, where one statement may say a little more.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from memory_service.write.conflict_rules import Attribute, ConflictRules
from memory_service.write.statements import Statement, Token, strong

UNIT_DISTANCE = 2  # "5 developers", "5 个人": the word a number belongs to stands right behind it
NUMERIC = frozenset({"date", "number"})
EXACT = frozenset({"date", "number", "address"})


@dataclass(frozen=True, slots=True)
class Difference:
    """`before` and `after` are the words of the frame around the two values; `ordered` when they stood in this order."""

    before: tuple[Token, ...]
    after: tuple[Token, ...]
    was: tuple[Token, ...]
    now: tuple[Token, ...]
    ordered: bool = True

    @property
    def words(self) -> tuple[Token, ...]:
        return (*self.before, *self.after)

    @property
    def exact(self) -> bool:
        """Numbers and addresses: the world changes them, nobody holds two opinions of them."""
        return all(any(t.kind in EXACT for t in value) for value in (self.was, self.now))

    @property
    def as_many(self) -> bool:
        """As many numbers and addresses as before."""
        was, now = (sum(t.kind in EXACT for t in value) for value in (self.was, self.now))
        return was == now

    @property
    def more_specific(self) -> bool:
        """One value is part of the other: more specific, not another."""
        if self.exact:
            return False
        one, other = {t.text for t in self.was}, {t.text for t in self.now}
        if one <= other or other <= one:
            return True
        left, right = "".join(t.text for t in self.was), "".join(t.text for t in self.now)
        return not left.isascii() and (left in right or right in left)


def differences(new: Statement, old: Statement, rules: ConflictRules) -> Iterator[Difference]:
    """The readings of how they differ, the surest first."""
    aligned = _aligned(new.tokens, old.tokens)
    if aligned is not None:
        yield aligned
    yield from _by_kind(new.strong, old.strong, rules)
    if new.whole and old.whole:
        yield from _by_exact_value(new.tokens, old.tokens, rules)


def _aligned(new: Sequence[Token], old: Sequence[Token]) -> Difference | None:
    matcher = SequenceMatcher(None, [t.text for t in old], [t.text for t in new], autojunk=False)
    found: tuple[int, int, int, int] | None = None
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal" or all(t.weak for t in (*old[i1:i2], *new[j1:j2])):
            continue
        if found is not None or not strong(old[i1:i2]) or not strong(new[j1:j2]):
            return None
        found = (i1, i2, j1, j2)
    if found is None:
        return None
    i1, i2, j1, j2 = found
    return Difference(strong(old[:i1]), strong(old[i2:]), strong(old[i1:i2]), strong(new[j1:j2]))


def _by_kind(new: Sequence[Token], old: Sequence[Token], rules: ConflictRules) -> Iterator[Difference]:
    """Each has one value of the same kind, and the other words are the same in another order or language."""
    for kind in sorted({k for t in old for k in rules.kinds.get(t.text, ())}):
        was = [t for t in old if kind in rules.kinds.get(t.text, ())]
        now = [t for t in new if kind in rules.kinds.get(t.text, ())]
        if len(was) == len(now) == 1 and was[0].text != now[0].text:
            frame = tuple(t for t in old if t is not was[0])
            if _told(frame, rules) == _told([t for t in new if t is not now[0]], rules):
                yield Difference(frame, (), tuple(was), tuple(now), ordered=False)


def _told(tokens: Sequence[Token], rules: ConflictRules) -> Counter[str]:
    """The words that carry the statement: not how the value is meant, nor that it is wished."""
    return Counter(t.text for t in tokens if t.text not in rules.light and t.text not in rules.wishes)


def _by_exact_value(new: Sequence[Token], old: Sequence[Token], rules: ConflictRules) -> Iterator[Difference]:
    """Each has one number, date or address; one may say more, but nothing that narrows it ("on Sundays")."""
    for kind in sorted(EXACT):
        was, now = ([t for t in side if t.kind == kind] for side in (old, new))
        if len(was) != 1 or len(now) != 1 or was[0].text == now[0].text:
            continue
        ours, theirs = _said_of(new, now[0], rules), _said_of(old, was[0], rules)
        if ours is not None and theirs is not None and _same_subject(ours, theirs, rules):
            more = max((ours, theirs), key=lambda said: len(said.core))
            frame = (*theirs.named, *ours.named, *more.core.values())
            yield Difference(frame, (), (was[0],), (now[0],), ordered=False)


@dataclass(frozen=True, slots=True)
class _Said:
    """What a statement says of its value: `named` words of attributes, and the other words by their text.

    `near`: a word of an attribute, if there is one, stands before the value or right behind it.
    """

    tokens: tuple[Token, ...]
    named: tuple[Token, ...]
    core: dict[str, Token]
    attributes: frozenset[str]
    near: bool

    def about(self, common: frozenset[str], rules: ConflictRules) -> dict[str, Token]:
        """What it speaks of: the words without those of attributes that both name; other attributes' words belong to the subject."""
        if not common:
            return self.core
        others = (t for t in self.named if not common & {a.name for a in rules.attributes[t.text]})
        return {**self.core, **{t.text: t for t in others}}

    def narrows(self, token: Token, rules: ConflictRules) -> bool:
        """Does this word say when, where or for what the value holds?"""
        at = self.tokens.index(token)
        before = self.tokens[at - 1] if at else None
        return token.text in rules.narrowing or (before is not None and before.text in rules.prepositions)


def _same_subject(one: _Said, other: _Said, rules: ConflictRules) -> bool:
    """Is one said of what the other is said of?  The one with more words must name the attribute too, when one does."""
    common = one.attributes & other.attributes
    if (one.attributes and other.attributes and not common) or not (one.near and other.near):
        return False
    fewer, more = sorted((one.about(common, rules), other.about(common, rules)), key=len)
    named = other.attributes if more is not None and set(more) <= {t.text for t in other.tokens} else one.attributes
    extra = [t for text, t in more.items() if text not in fewer]
    if any(len(t.text) == 1 and t.text.isascii() for t in extra):
        return False  # node B is not node A, whose name reads like an article
    if not set(fewer) <= set(more) or (extra and (one.attributes or other.attributes) and not named):
        return False
    shared = set(fewer) or {t.text for t in one.named} & {t.text for t in other.named}
    return bool(shared) and not any(said.narrows(t, rules) for t in extra for said in (one, other) if t in said.tokens)


def _said_of(tokens: Sequence[Token], value: Token, rules: ConflictRules) -> _Said | None:
    words = [t for t in strong(tokens) if t is value or t.text not in rules.light]
    at = next(i for i, t in enumerate(words) if t is value)
    named = tuple(t for t in words if t is not value and t.text in rules.attributes)
    core = {t.text: t for t in words if t is not value and t.text not in rules.attributes}
    near = not named or any(t in named for t in (*words[:at], *words[at + 1 : at + 1 + UNIT_DISTANCE]))
    names = frozenset(a.name for t in named for a in rules.attributes[t.text])
    return _Said(tuple(tokens), named, core, names, near) if core or named else None


def attribute_of(difference: Difference, rules: ConflictRules) -> Attribute | None:
    """The attribute of the frame that holds one value only, for these values; the word nearest to the value first."""
    places = [(t, 0) for t in reversed(difference.before)] + [(t, at) for at, t in enumerate(difference.after, 1)]
    for token, behind in places:
        for attribute in rules.attributes.get(token.text, ()):
            if _reaches(attribute, behind) and _fits(attribute, token, difference, rules):
                return attribute
    return _of_kind(difference, rules)


def _of_kind(difference: Difference, rules: ConflictRules) -> Attribute | None:
    """Two values of one kind in the same frame exclude each other, unless one can do both ("I speak")."""
    kinds = _kinds_of(difference, rules)
    many = any(t.text in rules.many for t in difference.words)
    if not kinds or many or not difference.words:
        return None
    return Attribute(name=min(kinds), words=(min(kinds),), changes="asks")


def _kinds_of(difference: Difference, rules: ConflictRules) -> frozenset[str]:
    """The kinds that both values are of."""
    if len(difference.was) != 1 or len(difference.now) != 1:
        return frozenset()
    none: frozenset[str] = frozenset()
    return rules.kinds.get(difference.was[0].text, none) & rules.kinds.get(difference.now[0].text, none)


def _reaches(attribute: Attribute, behind: int) -> bool:
    """May the value stand `behind` words before the attribute's word (0: it stands after it)?"""
    if attribute.needs == "number":
        return behind <= UNIT_DISTANCE
    return not behind or attribute.value_first or attribute.needs in ("kind", "purpose")


def _fits(attribute: Attribute, token: Token, difference: Difference, rules: ConflictRules) -> bool:
    others = [t for t in difference.words if t is not token]
    one_kind = bool(_kinds_of(difference, rules))
    match attribute.needs:
        case "domain":
            return one_kind or bool(others)
        case "kind":
            return one_kind
        case "purpose":
            return one_kind and bool(others)
        case "number":
            return all(any(t.kind in NUMERIC for t in value) for value in (difference.was, difference.now))
        case _:
            return True
