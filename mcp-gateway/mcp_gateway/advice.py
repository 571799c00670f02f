"""What should the caller's language model do after a failure? One plain sentence or two, never a stack or an address.

Pure: a failure and what was attempted go in, text comes out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from mcp_gateway.errors import NotSent, PartlySaved, Refused, ServiceFailure, Unanswered


class Effect(Enum):
    """What a call would have done; decides how a failure is worded."""

    READ = "read"
    SAVE = "save"
    CHANGE = "change"
    DELETE = "delete"


_NOTHING = {
    Effect.READ: "",
    Effect.SAVE: "Nothing was saved. ",
    Effect.CHANGE: "Nothing was changed. ",
    Effect.DELETE: "Nothing was deleted. ",
}
_UNKNOWN = {
    Effect.READ: "Try again.",
    Effect.SAVE: "It is unknown whether it was saved. Search before retrying.",
    Effect.CHANGE: "It is unknown whether it was changed. Search before retrying.",
    Effect.DELETE: "It is unknown whether it was deleted. Search before retrying; deleting it again does no harm.",
}
_KEY_HINT = "Send a valid key: 'Authorization: Bearer KEY' over HTTP, HINDSIGHT_API_KEY in the environment for stdio."
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_QUOTE_CHARS_MAX = 300
_FIELDS_MAX = 10


def advise(failure: ServiceFailure, effect: Effect, *, arguments: Mapping[str, str], missing: str) -> str:
    """`arguments` maps service fields to the tool's argument names; `missing` is the tool's sentence for 404."""
    if isinstance(failure, NotSent):
        return f"{_NOTHING[effect]}The memory service is not reachable. Try again later, or ask for it to be started."
    if isinstance(failure, Unanswered):
        reason = "did not answer in time" if failure.timed_out else "broke the connection before answering"
        return f"The memory service {reason}. {_UNKNOWN[effect]}"
    if isinstance(failure, PartlySaved):
        about_call = advise(failure.cause, effect, arguments=arguments, missing=missing)
        return f"Fact, to-do, done and variable were saved. The tool call: {about_call}"
    if isinstance(failure, Refused):
        return _advise_on_status(failure, effect, arguments, missing)
    return f"The memory service failed. {_UNKNOWN[effect]}"


def _advise_on_status(failure: Refused, effect: Effect, arguments: Mapping[str, str], missing: str) -> str:
    nothing = _NOTHING[effect]
    detail = _quote(failure.detail)
    match failure.status:
        case 401:
            return f"{nothing}The memory service needs an API key that it knows. {_KEY_HINT}"
        case 403:
            return f"{nothing}This key may not do that. {detail}Use a key with the needed role, bound to this user."
        case 404:
            return f"{nothing}{missing}"
        case 409 if failure.retry_after is not None:
            return f"The same request is still running. {_UNKNOWN[effect]} Wait {failure.retry_after} s first."
        case 409:
            return f"{nothing}It conflicts with the current state. {detail}Read it again, then decide."
        case 410:
            return f"{nothing}This id was erased for good and cannot come back. Write a new memory instead."
        case 413:
            return f"{nothing}It is too large: content may have at most 256 KiB. Split or shorten it. {detail}".rstrip()
        case 422 | 400:
            return f"{nothing}{_field_advice(failure, arguments)}"
        case 429:
            wait = f"Wait {failure.retry_after} s" if failure.retry_after is not None else "Wait a little"
            return f"{nothing}Too many requests. {wait}, then try again."
        case 503:
            wait = f" in {failure.retry_after} s" if failure.retry_after is not None else " later"
            if failure.code == "user_being_erased":
                return f"{nothing}All memories of this user are being erased just now. Try again{wait}."
            return f"{nothing}A store that the memory service needs is down. {detail}Try again{wait}."
        case status if status >= 500:
            return f"The memory service failed. {_UNKNOWN[effect]}"
        case status:
            return f"{nothing}The memory service refused it (HTTP {status}). {detail}".rstrip()


def _field_advice(failure: Refused, arguments: Mapping[str, str]) -> str:
    if not failure.fields:
        return _quote(failure.detail) or "The memory service did not accept the arguments."
    parts = []
    for problem in failure.fields[:_FIELDS_MAX]:
        field = _clean(problem.field).removeprefix("body.").removeprefix("query.")
        head, separator, rest = field.partition(".")
        name = arguments.get(field) or f"{arguments.get(head, head)}{separator}{rest}"
        parts.append(f"{name}: {_sentence(_clean(problem.message))}")
    if len(failure.fields) > _FIELDS_MAX:
        parts.append(f"({len(failure.fields) - _FIELDS_MAX} more)")
    return " ".join(parts)


def _quote(text: str) -> str:
    cleaned = _clean(text)
    return f"{_sentence(cleaned)} " if cleaned else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _clean(text: str) -> str:
    """One line, bounded, without addresses: a broken service must not leak its DSN through a language model."""
    line = " ".join(_ADDRESS.sub("[address removed]", text).split())
    return line if len(line) <= _QUOTE_CHARS_MAX else f"{line[:_QUOTE_CHARS_MAX]}…"
