"""Do the words that a text is asked for before its patterns ever hide a match?"""

import random
import re

import pytest

from memory_service.write.needles import Sieve, Sought, needles_of, sought
from memory_service.write.summarise import kind_of_text, summarise
from tests.unit.write.factories import labelled, shipped_rules

LINES = [line["content"] for name in ("labelled_lines", "held_out_lines", "blind_lines") for line in labelled(name)]


def _shipped() -> list[Sought]:
    rules = shipped_rules()
    cues = [cue.sought for rule in rules.event_types for cue in rule.cues]
    denied = [one for rule in rules.event_types for one in rule.denied]
    return [*cues, *denied, *rules.question_marks, *rules.question_starts]


def _mixed(seed: int) -> str:
    """Pieces of several lines, cut anywhere, in other cases and with characters whose lower() is longer than themselves."""
    chance = random.Random(seed)
    pieces = [line[chance.randrange(len(line)) :] for line in chance.sample(LINES, 4)]
    text = chance.choice(["", "İ", "\u212a", "ß", " "]).join(pieces)
    return chance.choice([text, text.upper(), text.lower(), text.title()])


def test_every_shipped_pattern_finds_what_it_found_without_its_words() -> None:
    patterns = _shipped()
    found = 0
    for text in [*LINES, *(_mixed(seed) for seed in range(300))]:
        lowered = text.lower()
        for one in patterns:
            matches = one.pattern.search(text) is not None
            found += matches
            assert one.found_in(text, lowered) == matches, (one.pattern.pattern, text)
    assert found > len(LINES)


def test_a_sieve_lets_through_every_pattern_that_is_found() -> None:
    patterns = _shipped()
    sieve = Sieve(patterns)
    let_through = 0
    for text in [*LINES, *(_mixed(seed) for seed in range(300))]:
        candidates = sieve.candidates(text.lower())
        let_through += len(candidates)
        assert {at for at, one in enumerate(patterns) if one.pattern.search(text)} <= candidates, text
    assert let_through < len(LINES) * len(patterns) / 4  # or it would be no sieve


def test_a_text_stored_as_given_is_of_the_kind_that_its_summary_says() -> None:
    rules = shipped_rules()
    for text in [*LINES, *(_mixed(seed) for seed in range(100))]:
        whole, part = summarise(text, rules), kind_of_text(text, rules)
        assert (part.event_type, part.category) == (whole.event_type, whole.category)


@pytest.mark.parametrize(
    ("pattern", "needles"),
    [
        (r"\bno longer\b", {"no longer"}),
        (r"(?:don't|never) (?:eat|drink)s?", {"don't", "never"}),
        (r"colou?r", {"colo"}),
        (r"(?:on|at) \d", {"on", "at"}),
        (r"x{2,3}", {"x"}),
        (r"[?？]$", {"?", "？"}),
        (r"HTTP", {"http"}),
        (r"是|为", {"是", "为"}),
        (r"\d{3}", None),
        (r"(?:abc)?", None),
        (r"(?:abc|\d)", None),
        (r"[^a]", None),
        (r"[a-z]", None),
        (r"(?!abc)\w", None),
        (r"É", None),  # "é" is what lower() makes of it, and what a text in NFD has not
    ],
)
def test_words_are_taken_only_where_each_match_has_one(pattern: str, needles: set[str] | None) -> None:
    assert needles_of(re.compile(pattern, re.ASCII | re.IGNORECASE)) == needles


def test_without_ascii_rules_for_letters_nothing_is_told() -> None:
    assert needles_of(re.compile("straße", re.IGNORECASE)) is None
    assert sought(re.compile("abc")).found_in("xABCabc", "xabcabc")
