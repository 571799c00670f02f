"""What kind of event does a text tell of, and what kind of knowledge is in it?

Adds up the cues of config/summarise.toml per sentence.  Quoted words are nobody's statement, a denied type is off for
its sentence, and a question asserts nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memory_service.write.rules import EventTypeRule, SummaryRules
from memory_service.write.sentences import without_quotations


@dataclass(frozen=True, slots=True)
class Reading:
    """`category` is None when there is nothing to keep as knowledge; `scores` holds the sum of cue weights per type."""

    event_type: EventTypeRule
    category: str | None
    scores: dict[str, float]


def read_event_type(sentences: Sequence[str], rules: SummaryRules) -> Reading:
    scores = {rule.name: 0.0 for rule in rules.event_types}
    seen: set[tuple[str, int]] = set()
    for sentence in sentences:
        stated = without_quotations(sentence).strip()
        lowered = stated.lower()
        if is_question(stated, rules):
            scores[rules.question.name] = rules.question_weight
            continue
        may = rules.sieve.candidates(lowered)
        for rule in rules.event_types:
            if may.isdisjoint(rule.numbers):
                continue
            scores[rule.name] += _new_weight(stated, lowered, rule, seen, may)
    candidates = [*rules.event_types, rules.question]
    best = max(candidates, key=lambda rule: scores.get(rule.name, 0.0))  # max keeps the first of equals
    if scores.get(best.name, 0.0) < rules.score_min:
        best = rules.fallback
    return Reading(best, _category(best, scores, rules), scores)


def cue_weight(sentence: str, rule: EventTypeRule) -> float:
    """Sum of the weights of the cues of one type in one sentence; 0 when the sentence denies the type."""
    stated = without_quotations(sentence).strip()
    return _new_weight(stated, stated.lower(), rule, set(), rule.numbers)


def is_question(sentence: str, rules: SummaryRules) -> bool:
    lowered = sentence.lower()
    return any(one.found_in(sentence, lowered) for one in (*rules.question_marks, *rules.question_starts))


def _new_weight(
    stated: str, lowered: str, rule: EventTypeRule, seen: set[tuple[str, int]], may: Collection[int]
) -> float:
    """A cue counts once per text: a log that says "error" a thousand times is not a thousand times an error.

    `may`: numbers of the cues that may be found.
    """
    matched = [
        (i, cue)
        for i, cue in enumerate(rule.cues)
        if cue.number in may and (rule.name, i) not in seen and cue.sought.found_in(stated, lowered)
    ]
    if not matched or any(one.found_in(stated, lowered) for one in rule.denied):
        return 0.0
    seen.update((rule.name, i) for i, _ in matched)
    return sum(cue.weight for _, cue in matched)


def _category(best: EventTypeRule, scores: dict[str, float], rules: SummaryRules) -> str | None:
    """A correction carries the kind of what it corrects; everything else the category of its own type."""
    if best.category is not None or best.name != CORRECTION:
        return best.category
    knowledge = [rule for rule in rules.event_types if rule.category is not None]
    corrected = max(knowledge, key=lambda rule: scores[rule.name], default=None)
    return corrected.category if corrected is not None and scores[corrected.name] >= rules.score_min else None


CORRECTION = "correction"  # the one type whose category depends on the rest of the text
