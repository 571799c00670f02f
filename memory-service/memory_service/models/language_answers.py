"""What did the model say?  From the bytes of a chat completion to its text, and from its text to a JSON object.

Models wrap JSON in prose, fences and thoughts, stop in the middle, or say something else; servers answer HTML.  Pure, and
linear in the size of the answer, which is whoever runs the server's.  It must not judge what the object means.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memory_service.errors import LanguageModelBadAnswer

STARTS_MAX = 64  # places in one text where a JSON object may begin; prose with more braces is code, not an answer
TOKENS_MAX = 10**9  # `usage` is the server's word; a larger count is a mistake and would spoil the sums for ever
_FENCE = re.compile(r"```[A-Za-z0-9_-]{0,20}[ \t]{0,4}\r?\n(.*?)(?:\r?\n)?```", re.DOTALL)
_THOUGHT_ENDS = ("</think>", "</thinking>", "</reasoning>")


class NoChatCompletion(LanguageModelBadAnswer):
    """The body is no chat completion at all: what answered is not, or not now, a language model."""


class UnusableAnswer(LanguageModelBadAnswer):
    """A chat completion without a fitting JSON object.  `answer` is the best object in it, unchecked; None when none."""

    def __init__(self, detail: str, answer: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Completion:
    """`finish_reason` is `stop` unless the server says otherwise; tokens are 0 when it does not count them."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int


def read_completion(body: bytes) -> Completion:
    """The first choice.  Raises NoChatCompletion."""
    try:
        envelope = json.loads(body.decode("utf-8", "replace"))
        choice = envelope["choices"][0]
        message = choice["message"]
        text = _text(message.get("content"))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise NoChatCompletion("the language model's endpoint did not answer with a chat completion") from None
    usage = envelope.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    reason = choice.get("finish_reason")
    if text is None:  # a refusal, a tool call, or nothing
        text, reason = "", "content_filter" if message.get("refusal") else reason
    return Completion(
        text,
        reason if isinstance(reason, str) else "stop",
        _tokens(counts.get("prompt_tokens")),
        _tokens(counts.get("completion_tokens")),
    )


def _text(content: object) -> str | None:
    """A text, or the text parts of a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else None


def _tokens(count: object) -> int:
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= TOKENS_MAX else 0


def json_objects(text: str) -> list[dict[str, Any]]:
    """Complete JSON objects in the text, likeliest first: the whole text, fenced blocks, objects amid prose.

    What a model thought before it answered does not count.  An object inside another is not found by itself, but a
    truncated object can leave a complete inner one, so the caller has to check for required keys.
    """
    for end in _THOUGHT_ENDS:
        text = text.rpartition(end)[2]
    stripped = text.strip()
    whole = _parsed(stripped) if stripped.startswith("{") else None
    if whole is not None:
        return [whole]
    fenced = [found for block in _blocks(stripped) if (found := _parsed(block.strip())) is not None]
    return fenced or list(_amid_prose(stripped))


def _blocks(text: str) -> Iterator[str]:
    for number, match in enumerate(_FENCE.finditer(text)):
        if number >= STARTS_MAX:
            return
        yield match.group(1)


def _amid_prose(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    for _ in range(STARTS_MAX):
        if (at := text.find("{", at)) < 0:
            return
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            if isinstance(found, dict):
                yield found


def _parsed(text: str) -> dict[str, Any] | None:
    """NaN and Infinity are read here and refused as values later: the rest of such an answer can be of use."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
