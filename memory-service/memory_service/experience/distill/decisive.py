"""Which steps of a run turned it?

For a talk of several agents: the messages that brought new claims or code early, since a later message can only build on
them.  For tool calls: the failures that were never cured, then the repeats, else the last call that did something.
Heuristics, measured against people's marks; so a lesson says "look here first", not "this is it".
"""

import re
from collections import Counter
from collections.abc import Sequence

from memory_service.experience.distill.run_view import RunView
from memory_service.experience.trajectory import Step, argument_text, call_key, words

_SPECIFIC = re.compile(r"\b(?:[A-Z][\w'’.-]+|\d[\w.,:%-]*)|[\u3400-\u9fff]{2,4}")
_CODE = re.compile(r"```|^\s{0,8}(?:import|def|from \w+ import|SELECT)\b", re.MULTILINE)
_PIECE = re.compile(r"[^\n。！？!?]+")
_WORDS_MIN = 4
_PHRASE_WORDS = 6
_REQUEST_CHARS_MAX = 600


def decisive_steps(run: RunView) -> tuple[int, ...]:
    """Numbers of the steps to look at first, most telling first; a few at most, empty for a run without steps."""
    limits = run.rules.limits
    most = limits.decisive_steps_long if len(run.steps) > limits.decisive_long_steps else limits.decisive_steps
    return (_turning_messages(run) if run.dialogue else _telling_calls(run))[:most]


def _turning_messages(run: RunView) -> tuple[int, ...]:
    fresh = _new_specifics(run)
    said = [at for at, step in enumerate(run.steps) if at and _kind(run, step) == "claim"]
    pool = (
        said
        or [at for at, step in enumerate(run.steps) if _kind(run, step) != "procedural"]
        or list(range(len(run.steps)))
    )
    most_new = max([fresh[at] for at in pool] + [1])
    weights = run.rules.decisive

    def weight(place: int, at: int) -> float:
        code = _CODE.search(argument_text(run.steps[at])) is not None
        return weights.new_specifics * fresh[at] / most_new + weights.code * code - weights.early * place / len(pool)

    ranked = sorted(enumerate(pool), key=lambda placed: (-weight(*placed), placed[1]))
    return tuple(at for _, at in ranked)


def _kind(run: RunView, step: Step) -> str:
    """procedural | plan | output | request | claim, by how a message begins."""
    text = argument_text(step)
    start = text.lstrip().casefold()
    starts = run.rules.messages
    if (len(text.split()) < _WORDS_MIN and text.isascii()) or start.startswith(starts.procedural):
        return "procedural"
    if start.startswith(starts.plan):
        return "plan"
    if start.startswith(starts.output):
        return "output"
    return "request" if start.startswith(starts.request) and len(text) < _REQUEST_CHARS_MAX else "claim"


def _new_specifics(run: RunView) -> list[int]:
    """Per step, how many names and numbers it says that neither the goal nor an earlier step said."""
    seen = set(_SPECIFIC.findall(run.trajectory.goal))
    counts = []
    for step in run.steps:
        mine = set(_SPECIFIC.findall(argument_text(step)))
        counts.append(len(mine - seen))
        seen |= mine
    return counts


def _telling_calls(run: RunView) -> tuple[int, ...]:
    """One step per distinct error: the third identical refusal tells nothing more."""
    failed = list(
        {(step.tool, step.error): at for at, step in reversed(list(enumerate(run.steps))) if step.failed}.values()
    )[::-1]
    uncured = [at for at in failed if not _worked_later(run.steps, at)]
    seen: set[str] = set()
    repeats = []
    for at, step in enumerate(run.steps):
        key = call_key(step)
        if key in seen and run.is_call(step):
            repeats.append(at)
        seen.add(key)
    done = [at for at, step in enumerate(run.steps) if run.is_call(step) and not step.failed and at not in repeats]
    said = [at for at, step in enumerate(run.steps) if run.is_talk(step)]
    order = (*uncured, *failed, *reversed(done), *repeats)
    return tuple(dict.fromkeys(order or [*reversed(said), *range(len(run.steps))]))


def _worked_later(steps: Sequence[Step], at: int) -> bool:
    return any(step.tool == steps[at].tool and not step.failed for step in steps[at + 1 :])


def telling_passages(run: RunView, chosen: Sequence[int]) -> list[str]:
    """Of each chosen message the passage with most phrases that no other step has; all of it when none is long enough."""
    holders: Counter[str] = Counter(set(_phrases(run.trajectory.goal)))
    for step in run.steps:
        holders.update(set(_phrases(argument_text(step))))
    return [_most_own(argument_text(run.steps[at]), holders, run.rules.limits.quote_chars_max) for at in chosen]


def _most_own(text: str, holders: Counter[str], chars_max: int) -> str:
    pieces = [piece.strip()[:chars_max] for piece in _PIECE.findall(text)]
    own = [
        (sum(1 if holders[phrase] <= 1 else -1 for phrase in _phrases(piece)), -place, piece)
        for place, piece in enumerate(pieces)
    ]
    best = max((found for found in own if len(words(found[2])) >= _PHRASE_WORDS), default=None)
    return best[2] if best else text


def _phrases(text: str) -> list[str]:
    said = words(text)
    return [" ".join(said[start : start + _PHRASE_WORDS]) for start in range(len(said) - _PHRASE_WORDS + 1)]
