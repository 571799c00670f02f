"""What is one lesson, over which state does it speak, and by which text is it found?

A `Lesson` is one decision point, ready to be stored as an experience.  Its conditions are triples over the state that an
agent has before a call.  `state_of` makes that state from a running task, so that distilled conditions and later calls speak
the same language; a caller's own `state` is laid over it.

State vocabulary (fields a distilled condition can name):
- `tool`                the tool about to be called
- `arguments.PATH`      its arguments as given, nested by dots; lists are whole
- `task_type`           as the task was started
- `goal`                the goal as one line (`matches`)
- `goal_terms`          list: the goal's distinctive words as stems, ids and numbers left out (`contains`)
- `last_error`          text of this task's newest failed call, "" when the last call of that tool worked since
- `last_error_class`    its class from config/distill.toml (`rate_limit`, `not_found` …), "other", or "none"
- `last_error_tool`     the tool that gave it, "" without one
- `succeeded_tools`     list: tools that worked in this task so far (`contains`, `not_contains`)
- `failed_tools`        list: tools that failed in this task so far

It must not find lessons (`distill`) and must not evaluate conditions (`matching`).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memory_service.experience.conditions import Operator
from memory_service.experience.distill_rules import NO_ERROR, DistillRules
from memory_service.experience.quoting import MASK, safe_text
from memory_service.experience.trajectory import Step, argument_text
from memory_service.experience.word_breaks import all_chinese
from memory_service.terms import query_terms

Origin = Literal["success", "failure", "detour", "feedback"]

_IDENTIFIER = re.compile(r"\S*[\d_@/\\]\S*")  # user names, dates, paths, amounts: of this run only
_TERM_CHARS_MIN = 2
_PLURAL_CHARS_MIN = 4
_LETTERS = re.compile(r"(?:(?![\u3400-\u9fff])[^\W\d_])+")


@dataclass(frozen=True, slots=True)
class Triple:
    """One condition as the contract writes it; conditions.py parses and normalises it."""

    field: str
    operator: Operator
    value: Any

    def as_json(self) -> dict[str, Any]:
        return {"field": self.field, "operator": self.operator, "value": self.value}


@dataclass(frozen=True, slots=True)
class Lesson:
    """`rule` names the finder; `source_steps` are numbers of the evidence from 0, decisive first."""

    rule: str
    conditions: tuple[Triple, ...]
    action: str
    avoid: str
    rationale: str
    origin: Origin
    confidence: float
    source_steps: tuple[int, ...]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A finding that is no lesson, and why in words."""

    lesson: Lesson
    reason: str


def lesson_text(action: str, avoid: str, rationale: str, conditions: Sequence[Mapping[str, Any]] = ()) -> str:
    """What is embedded and keyword-indexed for a lesson: the case first, because long texts lose their end in a window.

    Works on the stored fields alone, so that a reindex or a hand-written experience needs nothing else.
    """
    values: list[str] = []
    for condition in conditions:
        value = condition.get("value")
        values.extend(str(item) for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))
    return "\n".join(part for part in (rationale, action, avoid, " ".join(dict.fromkeys(values))) if part.strip())


def query_text(
    rules: DistillRules,
    *,
    goal: str = "",
    step: str = "",
    error: str = "",
    tool: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> str:
    """The retrieval query of a task's state (query distillation): what is wanted first, then where the agent stands.

    Instead of the raw message: ids and numbers of this run are dropped from error and arguments (a lesson never names
    them), the error's class is added in words (that is how lessons name it), secrets are masked, each part is bounded.
    """
    chars = rules.limits.quote_chars_max
    parts = [safe_text(goal, rules, rules.limits.goal_chars_max), safe_text(step, rules, chars)]
    if tool:
        parts.append(tool.replace("_", " "))
    if arguments:
        telling = " ".join(
            word for word in argument_text(Step(tool, arguments)).split() if not _IDENTIFIER.fullmatch(word)
        )
        parts.append(safe_text(f"{' '.join(arguments)} {telling}", rules, chars))
    if error.strip():
        kept = " ".join(word for word in error.split() if not _IDENTIFIER.fullmatch(word))
        parts.append(f"{rules.error_class(error).replace('_', ' ')}: {safe_text(kept, rules, chars)}")
    return "\n".join(dict.fromkeys(part for part in parts if part.strip()))


def goal_terms(goal: str, rules: DistillRules) -> list[str]:
    """Distinctive words of a goal as stems, the most repeated first, then in order; no ids, numbers or stop words."""
    plain = " ".join(word for word in safe_text(goal, rules, len(goal)).split() if not _IDENTIFIER.fullmatch(word))
    found = query_terms(plain, rules.vocabulary)
    known = [term for term in found if len(term) >= _TERM_CHARS_MIN and not _IDENTIFIER.fullmatch(term)]
    inside = rules.word_breaks.pairs(plain)
    known = [term for term in known if not all_chinese(term) or term in inside] or known
    terms = [term for term in known if term not in rules.generic_goal_terms] or known
    counts = Counter(stem for word in plain.split() for stem in query_terms(word, rules.vocabulary))
    return sorted(terms, key=lambda term: -counts[term])[: rules.limits.goal_terms_state_max]


def condition_terms(goal: str, rules: DistillRules, terms_max: int) -> list[str]:
    """Those of `goal_terms` that a condition may name: of Chinese the likeliest words, not every pair of characters."""
    likely = set(rules.word_breaks.words(goal))
    terms = goal_terms(goal, rules)
    return ([term for term in terms if not all_chinese(term) or term in likely] or terms)[:terms_max]


def telling_words(text: str, rules: DistillRules, words_max: int) -> list[str]:
    """Words as written (Latin in lower case) that tell what a text is about, in order: no verbs of any task, no times, no ids."""
    shown = safe_text(text, rules, len(text)).replace(MASK, " ")
    plain = " ".join(word for word in shown.split() if not _IDENTIFIER.fullmatch(word))
    dull = rules.generic_goal_terms | rules.doing_terms
    found = []
    for word in _LETTERS.findall(plain.casefold()):
        terms = query_terms(word, rules.vocabulary)
        telling = len(word) > _TERM_CHARS_MIN and word not in rules.vocabulary.stop_words
        if telling and terms and dull.isdisjoint(terms):
            found.append(word)
    found += [word for word in rules.word_breaks.words(plain) if word not in dull]
    return list(dict.fromkeys(found))[:words_max]


def any_word_pattern(found: Sequence[str]) -> str:
    """RE2 pattern that a text with any of these words matches, in singular or plural; "" without words."""
    spaced = sorted({_singular(word) for word in found if word.isascii()})
    glued = sorted({re.escape(word) for word in found if not word.isascii()})
    parts = [rf"\b(?:{'|'.join(spaced)})\w{{0,3}}\b"] if spaced else []
    return f"(?i){'|'.join((*parts, *glued))}" if found else ""


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > _PLURAL_CHARS_MIN:
        return rf"{re.escape(word[:-3])}(?:y|ies)"
    plural = word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > _PLURAL_CHARS_MIN
    return re.escape(word[:-1] if plural else word)


def state_of(
    rules: DistillRules,
    *,
    goal: str,
    task_type: str | None,
    tool: str,
    arguments: Mapping[str, Any],
    past: Sequence[Step],
) -> dict[str, Any]:
    """The state before a call.  `past`: the task's calls so far, oldest first."""
    failed = next((step for step in reversed(past) if step.failed), None)
    cured = failed is not None and any(
        step.tool == failed.tool and not step.failed for step in past[_at(past, failed) :]
    )
    error = failed.error if failed and not cured else ""
    state: dict[str, Any] = {
        "tool": tool,
        "arguments": dict(arguments),
        "goal": safe_text(goal, rules, rules.review.limits.text_chars_max),
        "goal_terms": goal_terms(goal, rules),
        "last_error": safe_text(error, rules, rules.limits.last_error_chars_max),
        "last_error_class": rules.error_class(error) if failed and not cured else NO_ERROR,
        "last_error_tool": failed.tool if failed and not cured else "",
        "succeeded_tools": list(dict.fromkeys(step.tool for step in past if not step.failed)),
        "failed_tools": list(dict.fromkeys(step.tool for step in past if step.failed)),
    }
    if task_type is not None:
        state["task_type"] = task_type
    return state


def _at(steps: Sequence[Step], wanted: Step) -> int:
    return next(at for at, step in enumerate(steps) if step is wanted)
