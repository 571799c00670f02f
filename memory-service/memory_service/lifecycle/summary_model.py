"""How does a language model word a summary, and when is its text believed?

It is shown the counted numbers and the beginnings of the sources as one JSON value; its text must keep every number of the
counted sentence and bring none of its own.  On any failure there is None, and the rules' text stands: nothing is lost here.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_service.domain import Memory
from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable
from memory_service.lifecycle.compress_rules import CompressNumbers
from memory_service.lifecycle.summary_facts import Facts
from memory_service.lifecycle.summary_text import detail_lines, head_line
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel
from memory_service.models.prompts import read_prompt
from memory_service.scripts import is_chinese
from memory_service.write.drafts import plain_summary

PROMPT = Path(__file__).parent / "prompts" / "compress.toml"
PURPOSE = "compression"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True)
class Worded:
    """A text that holds: one sentence, and the whole."""

    summary: str
    content: str


class SummaryModel:
    """Asks the configured model.  Raises SetupRefused at start for a broken prompt."""

    def __init__(self, model: LanguageModel, numbers: CompressNumbers) -> None:
        self._model = model
        self._numbers = numbers
        self._system, self._user = read_prompt(PROMPT)
        text = {"type": "string", "maxLength": numbers.model_chars_max}
        self._schema: dict[str, object] = {
            "type": "object",
            "properties": {"summary": text, "content": text},
            "required": ["summary", "content"],
            "additionalProperties": False,
        }

    async def worded(self, facts: Facts, sources: Sequence[Memory]) -> Worded | None:
        """None when the model does not answer in time, or with what can't be believed.  A cancellation passes through."""
        numbers = self._numbers
        shown = {
            "facts": head_line(facts),
            "details": list(detail_lines(facts)),
            "memories": [
                plain_summary(m.content, numbers.quote_chars_max) for m in sources[: numbers.model_quotes_max]
            ],
        }
        user = self._user.substitute(memories=as_data(shown))
        try:
            async with asyncio.timeout(numbers.model_deadline_s):
                answer = await self._model.complete_json(
                    system=self._system, user=user, schema=self._schema, purpose=PURPOSE
                )
        except (TimeoutError, ModelUnavailable, LanguageModelBadAnswer):
            return None
        told = Worded(str(answer.get("summary", "")).strip(), str(answer.get("content", "")).strip())
        return told if not objections(told, facts, user) else None


def objections(told: Worded, facts: Facts, shown: str) -> list[str]:
    """Why a model's text can't be believed, in words; empty when it can.  `shown` is everything that the model saw."""
    if not told.summary or not told.content:
        return ["it is empty"]
    found = []
    must = set(NUMBER.findall(head_line(facts)))
    for name, text in (("summary", told.summary), ("content", told.content)):
        if missing := must - set(NUMBER.findall(text)):
            found.append(f"{name} lost the numbers {', '.join(sorted(missing))}")
    if invented := set(NUMBER.findall(f"{told.summary} {told.content}")) - set(NUMBER.findall(shown)):
        found.append(f"it invented the numbers {', '.join(sorted(invented))}")
    if is_chinese(told.summary) != facts.chinese:
        found.append("it is in another language")
    if lost := [tool for tool in facts.tools if tool not in told.content]:
        found.append(f"it does not name {', '.join(lost)}")
    return found
