"""How does a language model answer with JSON that can be relied on?

The LanguageModel port over any OpenAI-compatible chat endpoint: the endpoint is asked, its answer checked against the
schema, once sent back with what is wrong, and given up then, all before one deadline.  Contents and keys are never logged.
No endpoint configured means no language model at all, and every feature has its deterministic twin for that.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from memory_service.errors import LanguageModelBadAnswer, LanguageModelUnavailable
from memory_service.metrics import LANGUAGE_CALLS, LANGUAGE_COST, LANGUAGE_SECONDS, LANGUAGE_TOKENS
from memory_service.models.language_answers import Completion, UnusableAnswer, json_objects
from memory_service.models.language_endpoint import ChatEndpoint, LanguageModelResting
from memory_service.models.language_request import Ask
from memory_service.models.language_schema import Schema, check_schema, fit
from memory_service.models.language_settings import LanguageConfig, LanguageNumbers

__all__ = ["ChatModel", "open_language_model"]

_CUT_OFF = ("length", "max_tokens")  # why a model stopped in the middle, as OpenAI and as others name it
_FILTERED = "content_filter"


def open_language_model(config: LanguageConfig | None, numbers: LanguageNumbers) -> "ChatModel | None":
    """None without an endpoint.  Connects at the first question, so a model that is down keeps nobody from starting.

    Raises SetupRefused when the endpoint's settings can't be right.
    """
    return ChatModel(config, numbers) if config is not None else None


class ChatModel:
    """The LanguageModel port.  Close it at shutdown."""

    def __init__(self, config: LanguageConfig, numbers: LanguageNumbers) -> None:
        self._endpoint = ChatEndpoint(config, numbers)
        self._numbers = numbers

    async def complete_json(self, *, system: str, user: str, schema: dict[str, object], purpose: str) -> dict[str, Any]:
        """An object that fits `schema`, within `deadline_s`.  `purpose` is a short constant from code: it labels metrics.

        Raises LanguageModelUnavailable, UnusableAnswer (a LanguageModelBadAnswer that carries what there was), and
        ValueError for a schema that can't be checked.
        """
        check_schema(schema)
        started, outcome = time.perf_counter(), "cancelled"
        try:
            answer, outcome = await self._answer(Ask(system, user, schema, purpose))
            return answer
        except LanguageModelResting:
            outcome = "skipped"
            raise
        except LanguageModelUnavailable:
            outcome = "unavailable"
            raise
        except LanguageModelBadAnswer:
            outcome = "bad_answer"
            raise
        finally:
            LANGUAGE_CALLS.labels(purpose, outcome).inc()
            if outcome != "skipped":
                LANGUAGE_SECONDS.labels(purpose).observe(time.perf_counter() - started)

    async def close(self) -> None:
        await self._endpoint.close()

    async def _answer(self, ask: Ask) -> tuple[dict[str, Any], str]:
        """The answer and how it was come by.  A repair that fails leaves the first answer to whoever can use parts of it."""
        ends = asyncio.get_running_loop().time() + self._numbers.deadline_s
        best: dict[str, Any] | None = None
        complaints = ["nothing"]
        for repair in range(1 + self._numbers.repairs_max):
            try:
                completion = await self._endpoint.complete(ask, ends)
            except (LanguageModelUnavailable, LanguageModelBadAnswer):
                if repair == 0:
                    raise
                break
            self._count(completion, ask.purpose)
            found, complaints = judged(completion, ask.schema)
            if found is not None and not complaints:
                return found, "repaired" if repair else "ok"
            best = found if found is not None else best
            if completion.finish_reason == _FILTERED:
                break
            ask = self._repaired(ask, completion, complaints)
        raise UnusableAnswer(f"the language model's answer could not be used: {'; '.join(complaints)}", best)

    def _repaired(self, ask: Ask, completion: Completion, complaints: list[str]) -> Ask:
        """The same question with the bad answer and what is wrong with it; never more than one bad answer long."""
        wrong = "\n".join(f"- {complaint}" for complaint in complaints)
        said = completion.text[: self._numbers.quoted_answer_chars_max] or "(nothing)"
        complaint = f"That answer can't be used:\n{wrong}\nAnswer again with only the whole corrected JSON object."
        return Ask(ask.system, ask.user, ask.schema, ask.purpose, ((said, complaint),))

    def _count(self, completion: Completion, purpose: str) -> None:
        numbers = self._numbers
        LANGUAGE_TOKENS.labels(purpose, "in").inc(completion.tokens_in)
        LANGUAGE_TOKENS.labels(purpose, "out").inc(completion.tokens_out)
        cost = completion.tokens_in * numbers.price_in_per_million_tokens
        cost += completion.tokens_out * numbers.price_out_per_million_tokens
        LANGUAGE_COST.labels(purpose).inc(cost / 1e6)


def judged(completion: Completion, schema: Schema) -> tuple[dict[str, Any] | None, list[str]]:
    """(the object that fits, no complaints), or (the one with the least wrong or None, what is wrong)."""
    if completion.finish_reason == _FILTERED:
        return None, ["it was refused by the model or its filter"]
    if completion.finish_reason in _CUT_OFF:
        return None, ["it was cut off at the longest length; be shorter"]
    best: Mapping[str, Any] | None = None
    complaints = ["it holds no JSON object"]
    for candidate in json_objects(completion.text):
        fitted, problems = fit(candidate, schema)
        if best is None or len(problems) < len(complaints):
            best, complaints = fitted, problems
        if not problems:
            break
    return (dict(best) if best is not None else None), complaints
