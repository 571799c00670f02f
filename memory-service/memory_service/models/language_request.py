"""What is sent to a chat endpoint, and what is left out once the endpoint has refused it?

OpenAI-compatible servers differ in what they take.  A `Shape` says what is used; `simpler` is the next one to try after a
400.  Pure.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import orjson

from memory_service.models.language_schema import Schema, without_bounds

# From what a grammar enforces down to asking nicely.
Format = Literal["schema", "schema_without_bounds", "object", "none"]
FORMATS: tuple[Format, ...] = get_args(Format)
SHAPES_MAX = len(FORMATS) + 3  # the ladder, the other name of the limit, no limit, no temperature
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_ONLY_JSON = "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """`limit` is the name under which the server takes the bound on the answer: reasoning models know only the longer."""

    format: Format = "schema"
    limit: Literal["max_tokens", "max_completion_tokens"] | None = "max_tokens"
    temperature: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """One question.  `repairs` are (answer, complaint) pairs of what went wrong before."""

    system: str
    user: str
    schema: Schema
    purpose: str
    repairs: tuple[tuple[str, str], ...] = ()

    @property
    def text_bytes(self) -> int:
        texts = (self.system, self.user, *(text for pair in self.repairs for text in pair))
        return sum(len(text.encode("utf-8", "replace")) for text in texts)


def request_body(ask: Ask, shape: Shape, model: str, answer_tokens_max: int, temperature: float) -> bytes:
    """The JSON of POST /chat/completions.  Lone surrogates, which no endpoint takes, become question marks."""
    body: dict[str, Any] = {"model": model, "messages": _messages(ask, shape), "stream": False}
    if shape.limit is not None:
        body[shape.limit] = answer_tokens_max
    if shape.temperature:
        body["temperature"] = temperature
    if shape.format == "object":
        body["response_format"] = {"type": "json_object"}
    elif shape.format != "none":
        body["response_format"] = {"type": "json_schema", "json_schema": _named_schema(ask, shape)}
    return orjson.dumps(body)


def simpler(shape: Shape, refusal: str) -> Shape | None:
    """The shape to try after a 400 or 422 whose body is `refusal`; None when there is nothing left to leave out.

    Some servers echo the whole request in the refusal, so the answer's format, refused most often, is looked for first.
    """
    about_format = "response_format" in refusal or "json_schema" in refusal or "grammar" in refusal
    if not (about_format and shape.format != "none"):
        if shape.temperature and "temperature" in refusal:
            return replace(shape, temperature=False)
        if shape.limit == "max_tokens" and "max_tokens" in refusal:
            return replace(shape, limit="max_completion_tokens")
        if shape.limit is not None and shape.limit in refusal:
            return replace(shape, limit=None)
    position = FORMATS.index(shape.format) + 1
    return replace(shape, format=FORMATS[position]) if position < len(FORMATS) else None


def _messages(ask: Ask, shape: Shape) -> list[dict[str, str]]:
    system = ask.system
    if shape.format in ("object", "none"):
        system = f"{system}\n\n{_ONLY_JSON}{orjson.dumps(ask.schema).decode()}"
    turns = [("system", system), ("user", ask.user)]
    for answer, complaint in ask.repairs:
        turns += [("assistant", answer), ("user", complaint)]
    return [{"role": role, "content": text.encode("utf-8", "replace").decode()} for role, text in turns]


def _named_schema(ask: Ask, shape: Shape) -> dict[str, Any]:
    schema = dict(ask.schema) if shape.format == "schema" else without_bounds(ask.schema)
    return {"name": _NOT_IN_NAMES.sub("_", ask.purpose)[:64] or "answer", "strict": True, "schema": schema}
