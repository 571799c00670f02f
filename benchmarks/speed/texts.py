"""Which texts are written and asked for?  Deterministic, varied, written for this benchmark; no public data set.

Pure.  Every text has a number of its own, so no two are alike and each can be asked for.
"""

from __future__ import annotations

import random

_WHO = ("Ann", "Ben", "Chiara", "Dmitri", "Esra", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kavya", "Liang")
_WHAT = (
    "moved the {thing} to port {a} and told the team that the old one closes after {b} days",
    "found that the {thing} drops connections when more than {a} clients ask within {b} seconds",
    "prefers that reports about the {thing} arrive before {b} o'clock and name at most {a} causes",
    "rolled the {thing} back to build {a} because {b} requests failed with a checksum error",
    "raised the memory of the {thing} from {b} to {a} megabytes after the nightly run was killed",
    "asked to keep the {thing} out of the release until ticket {a} is closed and {b} people agreed",
    "measured {a} milliseconds for the {thing} in the Oslo region and {b} in Lisbon",
    "wrote a script that exports the {thing} in {b} parts of {a} rows, since the tool stops earlier",
)
_THINGS = (
    "billing service", "staging database", "image cache", "search cluster", "mail gateway", "login page", "backup job",
    "invoice archive", "metrics board", "video encoder", "payment queue", "feature store", "customer export", "audit log",
)  # fmt: skip
_WHEN = ("On Monday", "In March", "Last week", "During the audit", "Before the holidays", "After the outage")
_ASK = (
    "what did {who} do with the {thing} and number {a}?",
    "who knows about the {thing} and {a}",
    "{thing} {a} {who}",
    "why was {a} mentioned for the {thing} by {who}?",
)


def texts(seed: str, count: int) -> list[str]:
    """`count` sentences of 15 to 30 words."""
    return [text_of(seed, number) for number in range(count)]


def text_of(seed: str, number: int) -> str:
    who, thing, dice = _cast(seed, number)
    said = dice.choice(_WHAT).format(thing=thing, a=_mark(seed, number), b=dice.randint(2, 28))
    return f"{dice.choice(_WHEN)} {who} {said}."


def queries(seed: str, count: int, among: int, salt: str) -> list[str]:
    """`count` questions about the first `among` texts of `seed`; another `salt` words them anew, so none is cached."""
    asked = []
    for number in range(count):
        dice = random.Random(f"{salt}/{number}")
        about = dice.randrange(among)
        who, thing, _ = _cast(seed, about)
        words = dice.choice(_ASK).format(who=who, thing=thing, a=_mark(seed, about))
        asked.append(f"{words} (asked as {salt} {number})")
    return asked


def _cast(seed: str, number: int) -> tuple[str, str, random.Random]:
    dice = random.Random(f"{seed}/{number}")
    return dice.choice(_WHO), dice.choice(_THINGS), dice


def _mark(seed: str, number: int) -> int:
    return 1000 + random.Random(f"mark {seed}").randrange(1000) + number * 7
