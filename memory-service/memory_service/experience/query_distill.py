"""What should be looked for by meaning, when a caller gives the state of a task and no words of his own?

The goal, the step, the last error and the planned call make the query (`lessons.query_text`); a language model may word it
instead, when [experience] derive_query_with_model says so, within a short deadline and with the rules' query as its twin.
A state without a goal gives none: fields of a program are no topic.  It must not search.
"""

import asyncio
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable, SetupRefused
from memory_service.experience.distill_model_settings import DistillModelNumbers
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.lessons import query_text
from memory_service.experience.quoting import safe_text
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel

PROMPT = Path(__file__).parent / "prompts" / "query.toml"
PURPOSE = "query"
GOALS = ("goal", "task_goal")


@dataclass(frozen=True, slots=True)
class QueryDistiller:
    """`model` is None where the rules shall do it alone; `system` is what it is told."""

    rules: DistillRules
    numbers: DistillModelNumbers
    model: LanguageModel | None = None
    system: str = ""

    async def query_of(self, state: Mapping[str, Any]) -> str | None:
        """None when the state names no goal.  Never fails; a cancellation passes through."""
        text = query_of_state(state, self.rules)
        if text is None or self.model is None:
            return text
        schema: dict[str, object] = {
            "type": "object",
            "properties": {"query": {"type": "string", "maxLength": self.numbers.query_chars_max}},
            "required": ["query"],
            "additionalProperties": False,
        }
        try:
            async with asyncio.timeout(self.numbers.query_deadline_s):
                answer = await self.model.complete_json(
                    system=self.system, user=as_data({"state": text}), schema=schema, purpose=PURPOSE
                )
        except (TimeoutError, ModelUnavailable, LanguageModelBadAnswer):
            return text
        said = answer.get("query")
        worded = safe_text(said, self.rules, self.numbers.query_chars_max) if isinstance(said, str) else ""
        return worded if any(c.isalnum() for c in worded) else text


def query_of_state(state: Mapping[str, Any], rules: DistillRules) -> str | None:
    """By the rules.  Pure; fields of other types than expected count as missing."""

    def text(*names: str) -> str:
        return next((state[n] for n in names if isinstance(state.get(n), str) and state[n].strip()), "")

    goal, arguments = text(*GOALS), state.get("arguments")
    if not goal:
        return None
    most = rules.review.limits.text_chars_max
    return query_text(
        rules,
        goal=goal[:most],
        step=text("step")[:most],
        error=text("last_error")[:most],
        tool=text("tool")[:most],
        arguments=arguments if isinstance(arguments, Mapping) else None,
    )


def load_query_prompt() -> str:
    """Raises SetupRefused for a broken prompt."""
    try:
        return str(tomllib.loads(PROMPT.read_text(encoding="utf-8"))["system"]).strip()
    except (OSError, ValueError, KeyError) as problem:
        raise SetupRefused(f"{PROMPT}: {problem}") from None
