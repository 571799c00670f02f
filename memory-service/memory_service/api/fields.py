"""Which values may a field take?  The annotated types that the request models are made of, one per idea."""

import unicodedata
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from memory_service.timestamps import parse_time

JOINERS = "\u200c\u200d"
ZERO_WIDTH = dict.fromkeys(map(ord, "\u3164\u115f\u1160\uffa0\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e"))
CONTENT_CHARS_MAX = 262_144  # each character is at least one byte of the contract's 256 KiB


def is_blank(text: str) -> bool:
    """Only white space and characters that show nothing."""
    return not text.translate(ZERO_WIDTH).strip()


def not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError("must not be blank")
    return text


def printable(text: str) -> str:
    """No control, unassigned or invisible characters; any script.  Joiners are needed in some scripts and in emoji."""
    if not (text.isascii() and text.isprintable()) and any(
        unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn") and c not in JOINERS for c in text
    ):
        raise ValueError("must consist of printable characters")
    return not_blank(text)


def parse_uuid(value: Any) -> UUID:
    if not isinstance(value, str):
        raise ValueError("must be an id (a UUID string)")
    try:
        return UUID(value)
    except ValueError:
        raise ValueError("must be an id (a UUID string)") from None


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("must be an RFC 3339 time such as 2026-01-31T09:30:00Z")
    return parse_time(value)


Identifier = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(printable)]
Text = Annotated[str, Field(min_length=1, max_length=CONTENT_CHARS_MAX), AfterValidator(not_blank)]
Content = Annotated[str, Field(min_length=1, description="at most 256 KiB of UTF-8"), AfterValidator(not_blank)]
Summary = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(not_blank)]
Label = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(printable)]
Query = Annotated[str, Field(min_length=1, max_length=32_768), AfterValidator(not_blank)]
Share = Annotated[float, Field(ge=0, le=1)]
Time = Annotated[datetime, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
Id = Annotated[UUID, BeforeValidator(parse_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]
