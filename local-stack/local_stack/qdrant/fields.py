"""Was every field of a request understood? Reads JSON objects field by field and refuses what nobody took.

A field that is null counts as absent: Qdrant's clients send both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from local_stack.qdrant.errors import BadRequest, NotMapped

PointId = int | str | UUID
_ID_MAX = 2**64 - 1


class Fields:
    """One JSON object. Take what is known, then call `done`, which answers 501 for the rest."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise BadRequest(f"{where} must be an object")
        self._left: dict[str, Any] = {name: found for name, found in value.items() if found is not None}
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def names(self) -> list[str]:
        """The fields that nobody took yet."""
        return list(self._left)

    def take(self, name: str) -> Any:
        """The raw value, None when absent or null."""
        return self._left.pop(name, None)

    def need(self, name: str) -> Any:
        """The raw value; 400 when absent."""
        if name not in self._left:
            raise BadRequest(f"{self.where}: missing field `{name}`")
        return self._left.pop(name)

    def text(self, name: str) -> str | None:
        found = self.take(name)
        if found is not None and not isinstance(found, str):
            raise BadRequest(f"{self.where}.{name} must be a string")
        return found

    def need_text(self, name: str) -> str:
        self._require(name)
        return self.text(name) or ""

    def whole(self, name: str, least: int = 0, most: int | None = None) -> int | None:
        """An integer from `least` to `most`."""
        found = self.take(name)
        if found is None:
            return None
        if (
            isinstance(found, bool)
            or not isinstance(found, int)
            or found < least
            or (most is not None and found > most)
        ):
            upper = "" if most is None else f" to {most}"
            raise BadRequest(f"{self.where}.{name} must be an integer from {least}{upper}")
        return found

    def number(self, name: str) -> float | None:
        found = self.take(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise BadRequest(f"{self.where}.{name} must be a number")
        return float(found)

    def flag(self, name: str) -> bool | None:
        found = self.take(name)
        if found is not None and not isinstance(found, bool):
            raise BadRequest(f"{self.where}.{name} must be true or false")
        return found

    def items(self, name: str) -> list[Any] | None:
        found = self.take(name)
        if found is not None and not isinstance(found, list):
            raise BadRequest(f"{self.where}.{name} must be a list")
        return found

    def texts(self, name: str) -> list[str] | None:
        found = self.items(name)
        if found is not None and not all(isinstance(item, str) for item in found):
            raise BadRequest(f"{self.where}.{name} must be a list of strings")
        return found

    def choice(self, name: str, allowed: Iterable[str]) -> str | None:
        """One of the mapped words; another word answers 501, since a newer Qdrant may know it."""
        found = self.text(name)
        if found is not None and found not in set(allowed):
            raise NotMapped(f"{self.where}.{name} = {found!r}")
        return found

    def ignore(self, *names: str) -> None:
        """Drops fields that are safe to ignore on a single node."""
        for name in names:
            self._left.pop(name, None)

    def done(self) -> None:
        """501 when a field is left that nobody understood."""
        if self._left:
            raise NotMapped(f"{self.where}: field(s) {', '.join(sorted(self._left))}")

    def _require(self, name: str) -> None:
        if name not in self._left:
            raise BadRequest(f"{self.where}: missing field `{name}`")


def point_id(value: object) -> PointId:
    """An unsigned integer or a UUID in its canonical form; 400 for anything else, in Qdrant's words."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _ID_MAX:
        return value
    if isinstance(value, str):
        try:
            return str(UUID(value))
        except ValueError:
            pass
    raise BadRequest(f"value {value!r} is not a valid point ID, valid values are either an unsigned integer or a UUID")


def point_ids(values: object, where: str) -> list[PointId]:
    """A list of point ids."""
    if not isinstance(values, list):
        raise BadRequest(f"{where} must be a list of point ids")
    return [point_id(value) for value in values]
