"""Which numbers and patterns does compression go by?  [compress] of config/memory.toml and config/compress.toml.

Nothing here looks at a memory but `read_text`, which finds how long something took and how it ended where only words say so.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from memory_service.errors import SetupRefused
from memory_service.lifecycle.compress import GroupRules
from memory_service.settings import Section


class CompressNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    cold_heat_below: float = Field(ge=0)
    untouched_days: float = Field(ge=0)
    group_min: int = Field(ge=2)
    repeated_days: float = Field(ge=0)
    repeated_min: int = Field(ge=2)
    repeated_importance_below: float = Field(ge=0)
    repeated_exempt_types: tuple[str, ...]
    group_max: int = Field(ge=2)
    remade_min: int = Field(ge=2)
    span_days_max: float = Field(gt=0)
    closeness_min: float = Field(ge=0, le=1)
    closeness_min_same_tool: float = Field(ge=0, le=1)
    words_shared_min: float = Field(ge=0, le=1)
    compared_max: int = Field(ge=10)
    candidates_max: int = Field(ge=1)
    windows_max: int = Field(ge=1)
    groups_max: int = Field(ge=1)
    users_page: int = Field(ge=1)
    vectors_page: int = Field(ge=1)
    content_chars_max: int = Field(ge=100)
    quotes_max: int = Field(ge=1)
    quote_chars_max: int = Field(ge=20)
    values_max: int = Field(ge=1)
    arguments_max: int = Field(ge=0)
    value_chars_max: int = Field(ge=1)
    calls_kept_max: int = Field(ge=0)
    entities_max: int = Field(ge=0)
    model_groups_max: int = Field(ge=0)
    model_quotes_max: int = Field(ge=1)
    model_deadline_s: float = Field(gt=0)
    model_chars_max: int = Field(ge=100)

    @property
    def cold(self) -> GroupRules:
        """Of memories that went cold long ago."""
        return self._rules(self.group_min, same_outcome=False)

    @property
    def repeated(self) -> GroupRules:
        """Of events that go on being repeated: how they ended is what a reader wants apart."""
        return self._rules(self.repeated_min, same_outcome=True)

    def _rules(self, size_min: int, *, same_outcome: bool) -> GroupRules:
        return GroupRules(
            self.closeness_min, self.closeness_min_same_tool, self.words_shared_min, size_min, self.group_max,
            self.span_days_max, self.compared_max, same_outcome,
        )  # fmt: skip


class _Unit(Section):
    ms: float = Field(gt=0)
    pattern: str


class _File(Section):
    worked: tuple[str, ...]
    failed: tuple[str, ...]
    not_worked: tuple[str, ...]
    duration_unit: tuple[_Unit, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class TextPatterns:
    """Compiled once."""

    worked: re.Pattern[str]
    failed: re.Pattern[str]
    doubtful: re.Pattern[str]
    durations: tuple[tuple[float, re.Pattern[str]], ...]

    def ended(self, text: str) -> bool | None:
        """True when the text says that it worked, False when it failed, None when it says neither, or both."""
        if self.doubtful.search(text):
            return None
        worked, failed = bool(self.worked.search(text)), bool(self.failed.search(text))
        return None if worked == failed else worked

    def duration_ms(self, text: str) -> float | None:
        """The one duration that the text names; None for none, and for several, of which nobody knows what they time."""
        found = [float(m[1].replace(",", "")) * ms for ms, pattern in self.durations for m in pattern.finditer(text)]
        return found[0] if len(found) == 1 else None


def load_text_patterns(path: Path) -> TextPatterns:
    """Read config/compress.toml.  Raises SetupRefused naming the file and what is wrong with it."""
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        return TextPatterns(
            _any(file.worked),
            _any(file.failed),
            _any(file.not_worked),
            tuple(
                (
                    unit.ms,
                    re.compile(
                        rf"(?<![\w.,])(\d[\d,]{{0,12}}(?:\.\d{{1,6}})?)\s?{unit.pattern}(?![A-Za-z])", re.IGNORECASE
                    ),
                )
                for unit in file.duration_unit
            ),
        )
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, re.error) as problem:
        raise SetupRefused(f"{path}: {problem}") from None
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        raise SetupRefused(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in patterns), re.IGNORECASE)
