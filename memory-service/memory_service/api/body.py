"""What did the caller send, and is it text and JSON that every store can hold?

Reads the body once, within its bound, refuses what would break further down (NUL, lone surrogates, NaN, huge integers,
deep nesting) naming the field, and validates it into a Pydantic model.  FastAPI's own body parsing lets all of these through.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from memory_service.domain import Caller
from memory_service.errors import BadRequest, FieldError, InvalidFields, TooLarge, UnsupportedEncoding
from memory_service.settings import Limits

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
ERRORS_MAX = 20
TWICE = "is given twice"
ALIASES = {"top_k": "limit"}  # in bodies and addresses alike
USER = "user_id"  # may be left out with a key that is bound to one
M = TypeVar("M", bound="Contract")


class Contract(BaseModel):
    """A request body: no unknown fields, no type coercion (1 is not "1")."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """The body.  Raises TooLarge as soon as it is known to be, and UnsupportedEncoding for one that is packed."""
    for packed in request.headers.getlist("content-encoding"):
        if any(name.strip().lower() not in ("", "identity") for name in packed.split(",")):
            raise UnsupportedEncoding("Content-Encoding: only identity is read; send the body as it is")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limits.body_bytes_max:
        raise TooLarge(f"the body is above {limits.body_bytes_max} bytes")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limits.body_bytes_max:
            raise TooLarge(f"the body is above {limits.body_bytes_max} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(raw: bytes, limits: Limits) -> Any:
    """The JSON value.  Raises BadRequest when it is not JSON in UTF-8, InvalidFields when it is too deep."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_constant, parse_int=_integer, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    except RecursionError:
        raise InvalidFields.of("body", f"is nested deeper than {limits.json_depth_max}") from None
    except ValueError:
        raise BadRequest("the body is not JSON") from None


def check_values(value: Any, limits: Limits, field: str = "") -> list[FieldError]:
    """What no store could hold: at most ERRORS_MAX complaints, each naming its field."""
    errors: list[FieldError] = []
    _check(value, (field,) if field else (), 1, limits.json_depth_max, errors)
    return errors


async def read_body(request: Request, model: type[M], limits: Limits) -> M:
    """The validated body.  The raw bytes stay in request.state.raw_body for the Idempotency-Key."""
    raw = await read_bytes(request, limits)
    request.state.raw_body = raw
    value = parse_json(raw, limits)
    if not isinstance(value, dict):
        raise InvalidFields.of("body", "must be a JSON object")
    return validated(model, with_own_user(model, value, getattr(request.state, "caller", None)), limits)


def with_own_user(model: type[Contract], value: Any, caller: Caller | None) -> Any:
    """`value` with the user that the key is bound to, where the model wants a user and none is named."""
    if caller is None or caller.user_id is None or not isinstance(value, dict) or USER not in model.model_fields:
        return value
    if USER not in value:
        value[USER] = caller.user_id
    return value


def validated(model: type[M], value: Any, limits: Limits) -> M:
    """`value` as the model.  Raises InvalidFields naming every bad field, or TooLarge."""
    if errors := check_values(value, limits):
        raise _invalid(errors)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise from_pydantic(error, model) from None


def from_pydantic(error: ValidationError, model: type[BaseModel]) -> InvalidFields:
    """The complaints in the caller's words; the values stay out."""
    raw = error.errors(include_url=False, include_input=False, include_context=False)
    found = []
    for e in raw:
        field, told = dotted(e["loc"]) or "body", message(e["type"], e["msg"])
        # With `limit` there, an alias of it is one name too many to Pydantic.
        if e["type"] == "extra_forbidden" and ALIASES.get(field) in model.model_fields:
            told = same_as(ALIASES[field])
        found.append(FieldError(field, told))
    return _invalid(found)


def same_as(name: str) -> str:
    """What is told of an alias that is given beside the name itself."""
    return f"means the same as {name}: give only one of them"


def dotted(path: Sequence[Any]) -> str:
    """tags.0 for ('tags', 0); names that only tell which branch of a union was tried are left out."""
    return ".".join(
        str(p) for p in path if not (isinstance(p, str) and ("[" in p or p in {"str", "function-after", "Entity"}))
    )


def message(kind: str, text: str) -> str:
    """Pydantic's sentence, in ours where it speaks of Python."""
    own = {
        "extra_forbidden": "is not a field of this request",
        "missing": "is required",
        "model_type": "must be an object",
    }
    return own.get(kind, text.removeprefix("Value error, "))


def _invalid(errors: Sequence[FieldError]) -> InvalidFields:
    shown = tuple(errors[:ERRORS_MAX])
    return InvalidFields("; ".join(f"{e.field}: {e.message}" for e in shown[:5]), errors=shown)


class _Infinite(float):
    """NaN or an infinity, marked while parsing so that the field can be named afterwards."""


class Repeating(dict[str, Any]):
    """An object that names a key twice, marked while parsing so that the place can be named afterwards.

    Parsers disagree about which of the two counts, so one that a proxy checked need not be the one that is stored.
    """

    repeated: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    marked = Repeating(value)
    marked.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return marked


def _constant(name: str) -> float:
    return _Infinite(name)


def _integer(text: str) -> int | float:
    if len(text) > 20:  # far above 64 bits; int() of a million digits would take its time
        return _Infinite("inf")
    return int(text)


def _check(value: Any, path: tuple[Any, ...], depth: int, depth_max: int, errors: list[FieldError]) -> None:
    if len(errors) >= ERRORS_MAX:
        return
    if isinstance(value, str):
        if (problem := text_problem(value)) is not None:
            errors.append(FieldError(shown(path), problem))
    elif isinstance(value, dict | list):
        if depth > depth_max:
            errors.append(FieldError(shown(path[:8]), f"is nested deeper than {depth_max}"))
            return
        if isinstance(value, Repeating):
            errors.append(FieldError(shown((*path, value.repeated)), TWICE))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, str) and (problem := text_problem(key)) is not None:
                errors.append(FieldError(shown(path), f"has a key that {problem}"))
            else:
                _check(item, (*path, key), depth + 1, depth_max, errors)
    elif isinstance(value, float):
        if not math.isfinite(value):
            errors.append(FieldError(shown(path), "must be a finite number that fits 64 bits"))
    elif isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        errors.append(FieldError(shown(path), "must fit 64 bits"))


def shown(path: Sequence[Any]) -> str:
    """A path that is itself safe to answer."""
    return ".".join(str(p).encode("utf-8", "replace").decode()[:200] for p in path) or "body"


def text_problem(text: str) -> str | None:
    """What keeps a string from being stored, or None."""
    if "\0" in text:
        return "contains a NUL character"
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return None
