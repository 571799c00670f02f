"""Does a new fact or preference contradict an older one, or update it?  Pure.

Two statements are about the same when their words are the same but for one value, and when a word among the equal ones
says that there can be only one such value (residence, port, preferred length of answers …; config/conflicts.toml).  Or when
all words are the same and one of them is negated.  Everything else is unrelated: more specific, another subject, another
time, a condition, a question.  When in doubt the answer is None: a wrong conflict costs a person's attention, a wrong update
hides what is true.  It must not look anything up.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from memory_service.write.conflict_rules import Attribute, ConflictRules
from memory_service.write.frames import Difference, attribute_of, differences
from memory_service.write.statements import Statement, Token, statements

Relation = Literal["contradiction", "update"]
TAKING_PART = frozenset({0, 1})  # of [marks] persons: I and you


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


def relation_of(new: str, old: str, rules: ConflictRules) -> Verdict | None:
    """How `new` stands to `old`, both whole texts.  A contradiction in any sentence outweighs an update in another."""
    return relation_between(statements(new, rules), statements(old, rules), rules)


def relation_between(new: Sequence[Statement], old: Sequence[Statement], rules: ConflictRules) -> Verdict | None:
    """The same over texts that were read before."""
    found = [v for one, other in product(new, old) if (v := _compared(one, other, rules)) is not None]
    return min(found, key=lambda verdict: verdict.relation, default=None)


def _compared(new: Statement, old: Statement, rules: ConflictRules) -> Verdict | None:
    changed = bool(new.marks & {"change", "ended", "change_to"})
    moved = "change_to" in new.marks  # "moved last month" tells of what is true now
    if "several" in new.marks or "past" in old.marks - new.marks or ("past" in new.marks - old.marks and not moved):
        return None
    if not _same_persons(new.persons, old.persons):
        return None
    if Counter(t.text for t in new.strong) == Counter(t.text for t in old.strong):
        return _opposite(new, old, changed)
    if "ended" in new.marks and not old.negated and _part_of(new, old):
        return Verdict("update", _shown(old.strong), "", "")
    if not new.whole and not (old.whole and changed):
        return None  # a clause may be what a condition before it is about ("on weekends, I prefer …")
    if new.negated or old.negated:
        return None
    if (replaced := _replaced(new, old, rules)) is not None:
        return replaced
    for difference in differences(new, old, rules):
        if difference.more_specific or len(difference.was) > rules.limits.value_tokens_max:
            continue
        verdict = _judged(difference, new, changed, rules)
        if verdict is not None:
            return verdict
    return None


def _same_persons(one: frozenset[int], other: frozenset[int]) -> bool:
    """Mine and yours are two; "the port" may be mine, but not his."""
    if one and other:
        return bool(one & other)
    return (one | other) <= TAKING_PART


def _opposite(new: Statement, old: Statement, changed: bool) -> Verdict | None:
    """The same words, one of the two negated."""
    enough = len(old.strong) > 1 or (new.whole and old.whole) or len(old.strong[0].text) > 1
    if new.negated == old.negated or not enough:
        return None
    return Verdict("update" if changed else "contradiction", _shown(old.strong), "", "")


def _part_of(new: Statement, old: Statement) -> bool:
    """ "I no longer drink coffee" ends "I drink two cups of coffee a day"."""
    said = {t.text for t in new.strong}
    return len(said) > 1 and said <= {t.text for t in old.strong}


def _judged(difference: Difference, new: Statement, changed: bool, rules: ConflictRules) -> Verdict | None:
    attribute = attribute_of(difference, rules)
    first = _shared_beginning(difference, attribute, rules)
    was, now = _shown((*first, *difference.was)), _shown((*first, *difference.now))
    if attribute is None:
        if "change_to" in new.marks and difference.ordered and difference.before:
            return Verdict("update", _shown(difference.words), was, now)
        return None
    plain = attribute.changes == "plainly" or (attribute.changes == "asks" and (changed or difference.exact))
    if difference.exact and not changed:
        plain = plain and difference.as_many  # "80 and 443", then 8080: nobody said what became of the other
    return Verdict("update" if plain else "contradiction", attribute.name, was, now)


def _replaced(new: Statement, old: Statement, rules: ConflictRules) -> Verdict | None:
    """ "We moved CI from Jenkins to GitHub": the old value is named, and the rest of the old statement is spoken of too."""
    tokens = new.tokens
    start = next((i for i, t in enumerate(tokens) if t.text in rules.origin_words), None)
    if start is None or "change_to" not in new.marks or not new.whole:
        return None
    known = {t.text for t in old.strong}
    origin = next((t for t in tokens[start + 1 :] if not t.weak), None)
    others = [t for t in tokens[:start] if not t.weak]
    if origin is None or origin.text not in known or not any(t.text in known for t in others):
        return None
    target = [t for t in tokens[start + 1 :] if not t.weak and t.text not in known]
    return Verdict("update", _shown(others), origin.shown, _shown(target)) if target else None


def _shared_beginning(difference: Difference, attribute: Attribute | None, rules: ConflictRules) -> tuple[Token, ...]:
    """Words right before the two values that belong to both: "New" of "New York" and "New Delhi".

    Behind the word of the attribute, and with nothing but one space or hyphen between them and the value.
    """
    named = [at for at, t in enumerate(difference.before) if attribute in rules.attributes.get(t.text, ())]
    if not named or not difference.ordered:
        return ()
    found, following = list[Token](), difference.was[0]
    for token in reversed(difference.before[named[-1] + 1 :]):
        if following.start - token.end > 1:
            break
        found.insert(0, token)
        following = token
    return tuple(found)


def _shown(tokens: Sequence[Token]) -> str:
    return " ".join(t.shown for t in tokens)
