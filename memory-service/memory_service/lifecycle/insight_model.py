"""How does a language model word a finding, and when is it believed?

It sees the finding only, never the episodes, and its text must name what the rules' wording names and bring no number of its
own.  On any failure there is None, and the rules' wording stands.
"""

import asyncio
from dataclasses import asdict
from pathlib import Path

from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable
from memory_service.lifecycle.insight_rules import InsightNumbers
from memory_service.lifecycle.insight_text import LessonTexts
from memory_service.lifecycle.insights import ABSENT, Finding
from memory_service.lifecycle.summary_model import NUMBER
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel
from memory_service.models.prompts import read_prompt
from memory_service.scripts import is_chinese

PROMPT = Path(__file__).parent / "prompts" / "insight.toml"
PURPOSE = "insight"


class InsightModel:
    """Asks the configured model.  Raises SetupRefused at start for a broken prompt."""

    def __init__(self, model: LanguageModel, numbers: InsightNumbers) -> None:
        self._model = model
        self._numbers = numbers
        self._system, self._user = read_prompt(PROMPT)
        text = {"type": "string", "maxLength": numbers.text_chars_max}
        parts = ("action", "avoid", "rationale")
        self._schema: dict[str, object] = {
            "type": "object",
            "properties": dict.fromkeys(parts, text),
            "required": list(parts),
            "additionalProperties": False,
        }

    async def worded(self, finding: Finding, plain: LessonTexts) -> LessonTexts | None:
        """None when there is no answer in time, or none that can be believed.  A cancellation passes through."""
        cure = finding.cure
        shown = {
            "tool": finding.tool, "fails_with": finding.cause, "episodes": len(finding.sources), "error": finding.error,
            "cure": {"kind": cure.kind, "argument": cure.path, "value": cure.new, "other_tool": cure.tool},
            "wording": asdict(plain),
        }  # fmt: skip
        user = self._user.substitute(finding=as_data(shown))
        try:
            async with asyncio.timeout(self._numbers.model_deadline_s):
                answer = await self._model.complete_json(
                    system=self._system, user=user, schema=self._schema, purpose=PURPOSE
                )
        except (TimeoutError, ModelUnavailable, LanguageModelBadAnswer):
            return None
        action, avoid, rationale = (str(answer.get(part, "")).strip() for part in ("action", "avoid", "rationale"))
        told = LessonTexts(action, avoid, rationale)
        return told if believable(told, finding, plain, user) else None


def believable(told: LessonTexts, finding: Finding, plain: LessonTexts, shown: str) -> bool:
    """It tells to do what was found: the tool, and what cured it, are named in the action itself; no number is invented."""
    cure = finding.cure
    named = [finding.tool, cure.path, cure.tool, "" if cure.new == ABSENT else cure.new.strip('"')]
    whole = f"{told.action} {told.avoid} {told.rationale}"
    return (
        bool(told.action and told.rationale)
        and all(one in told.action for one in named if one)
        and not set(NUMBER.findall(whole)) - set(NUMBER.findall(shown))
        and is_chinese(told.action) == is_chinese(plain.action)
    )
