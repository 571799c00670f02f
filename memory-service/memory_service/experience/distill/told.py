"""What does a user's feedback tell to do, and what to avoid?

Read sentence by sentence.  A wrong split tells an agent the opposite, so in doubt a whole sentence is what to do, in the
user's words; only a form that is clear by its shape ("never X", "X; prefer Y", "Y instead of X") names the thing avoided, and
names it without its negation.  Praise and bare verdicts tell nothing.  It must not look at the run.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory_service.experience.distill_rules import FeedbackWords
from memory_service.experience.trajectory import words

_SENTENCE = re.compile(r"[^。！？!?；;\n.]+(?:[。！？!?；;]|\.(?=\s|$)|\.(?=\S)[^。！？!?；;\n.]*)*")
_ENDS = " .!;。！；，,"
# "stop" takes an -ing form: "stop when the budget is used up" tells what to do.
_NEVER = re.compile(
    r"(?:please,?\s+)?(?:(?:you\s+)?(?:must|should)(?:\s+not|n['’]t|\s+never)|(?:don['’]t|do\s+not)(?:\s+ever)?|never|avoid"
    r"|stop(?=\s+\w+ing\b))\s+(?P<thing>.+)",
    re.IGNORECASE,
)
_INSTEAD_OF = re.compile(r"instead\s+of\s+(?P<thing>[^,]+),\s*\S.*", re.IGNORECASE)
_RATHER_THAN = re.compile(
    r"(?P<do>.+?)(?:,?\s+(?:instead\s+of|rather\s+than|and\s+not|but\s+not)|,\s*(?:not|never))\s+(?P<thing>[^,]+)",
    re.IGNORECASE,
)
_THEN = re.compile(r"(?P<first>[^,，]+)[,，]\s*(?P<then>(?:(?:and|but|please|而是|要|应该|请)\s*)?\S.*)", re.IGNORECASE)
_USING = re.compile(r"(?:us(?:e|ing)\s+|使用|采用|用)\s*", re.IGNORECASE)
_NEVER_ZH = re.compile(
    r"(?:请|以后|下次|今后|千万|一定)*(?:不要|别|禁止|严禁|避免|请勿|切勿|勿|不得|不许|不准|不应该?|不该)再?\s*(?P<thing>.+)"
)
_RATHER_THAN_ZH = re.compile(r"(?P<do>.+?)(?:[，,]?\s*(?:而不是|而非)|\s*(?:代替|取代|替代))\s*(?P<thing>[^，,]+)")
_LAST_CLAUSE_ZH = re.compile(r"(?P<do>.+)[，,]\s*(?P<last>[^，,]+)")


@dataclass(frozen=True, slots=True)
class Told:
    """Both empty when the feedback teaches nothing."""

    action: str
    avoid: str


@dataclass(frozen=True, slots=True)
class _Said:
    """One sentence.  `bare`: it only says what not to do, so it need not stand beside an instruction as well."""

    action: str
    avoid: str = ""
    bare: bool = False


def told(text: str, lists: FeedbackWords, known: Iterable[str] = ()) -> Told:
    """`known`: words of the goal, which praise may repeat ("a great sales report")."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip()] or [text]
    said = [_read(one, lists) for one in sentences if not is_verdict(one, lists, frozenset(known))]
    avoid = "; ".join(dict.fromkeys(one.avoid for one in said if one.avoid))
    others = [one for one in said if not one.bare]
    if others and all(_instructs(one.action, lists) for one in others):
        said = others
    return Told(" ".join(one.action for one in said), avoid)


def is_verdict(sentence: str, lists: FeedbackWords, known: frozenset[str] = frozenset()) -> bool:
    """Whether it judges and says nothing else: some word of praise or blame, and besides only words that go with them."""
    rest, judged = sentence.casefold(), False
    for phrase in lists.verdict_phrases_zh:
        judged = judged or (phrase in lists.judging_zh and phrase in rest)
        rest = rest.replace(phrase, " ")
    left = words(rest)
    judged = judged or not lists.judging.isdisjoint(left)
    return judged and all(word in lists.judging or word in lists.beside_verdict or word in known for word in left)


def _read(sentence: str, lists: FeedbackWords) -> _Said:
    plain = sentence.strip(_ENDS)
    if sentence.rstrip().endswith(("?", "？")):
        return _Said(sentence)
    split = _split_in_two(sentence, plain, lists)
    if split is not None:
        return split
    thing = _prohibited(plain, lists)
    if thing:
        return _Said(sentence, thing, bare=True)
    return _Said(sentence, _avoided_beside(plain, lists))


def _split_in_two(sentence: str, plain: str, lists: FeedbackWords) -> _Said | None:
    """ "Don't use X, use Y": the second clause is what to do."""
    found = _THEN.fullmatch(plain)
    thing = _prohibited(found["first"].strip(), lists) if found else ""
    if not found or not thing or not _instructs(found["then"], lists):
        return None
    return _Said(sentence[sentence.index(found["then"]) :], _USING.sub("", thing, count=1).strip())


def _prohibited(clause: str, lists: FeedbackWords) -> str:
    """What a clause of the form "never X" forbids; "" when it is none or its X leaves a doubt."""
    found = _NEVER.fullmatch(clause) or _NEVER_ZH.fullmatch(clause)
    return _clear(found["thing"], lists) if found else ""


def _avoided_beside(plain: str, lists: FeedbackWords) -> str:
    """The X of "Y instead of X" and its like, when the sentence is an instruction; "" otherwise."""
    if found := _INSTEAD_OF.fullmatch(plain):
        return _clear(found["thing"], lists)
    for form in (_RATHER_THAN, _RATHER_THAN_ZH):
        found = form.fullmatch(plain)
        if found and _instructs(found["do"], lists) and not _doubtful(found["do"], lists):
            return _clear(found["thing"], lists)
    found = _LAST_CLAUSE_ZH.fullmatch(plain)
    if found and not any(word in found["do"] for word in lists.conditional_zh) and _NEVER_ZH.match(found["last"]):
        return _prohibited(found["last"], lists)
    return ""


def _clear(thing: str, lists: FeedbackWords) -> str:
    thing = thing.strip(_ENDS)
    return "" if not thing or _doubtful(thing, lists) else thing


def _doubtful(thing: str, lists: FeedbackWords) -> bool:
    """Another clause, another negation, a "just", or something that is wanted: "don't forget X", "别漏 X"."""
    said = words(thing)
    return (
        re.search(r"[,;:，；：—–]|n['’]t\b", thing) is not None
        or not lists.doubt.isdisjoint(said)
        or (bool(said) and said[0] in lists.wanted_after_not)
        or thing.startswith(lists.wanted_after_not_zh)
        or any(word in thing for word in lists.doubt_zh)
    )


def _instructs(text: str, lists: FeedbackWords) -> bool:
    started: Sequence[str] = words(text)
    first = next((word for word in started if word not in lists.before_instruction), "")
    return first in lists.instructing or text.lstrip().startswith(lists.instructing_zh)
