"""May this pattern run, and does it match?

RE2 syntax, unanchored, case-sensitive unless (?i).  RE2 has no backtracking, so time is at most text × program; all three of
pattern, program and text are bounded.  Must not raise for any text.
"""

from collections import OrderedDict
from typing import Any

import re2

from memory_service.experience.conditions_settings import ConditionLimits


def compile_pattern(pattern: str, limits: ConditionLimits) -> Any:
    """A re2 pattern.  Raises ValueError saying what is wrong with it."""
    if len(pattern) > limits.pattern_chars_max:
        raise ValueError(f"must be a pattern of at most {limits.pattern_chars_max} characters")
    options = re2.Options()
    options.log_errors = False  # RE2 would write the caller's pattern to stderr
    options.never_capture = True
    options.max_mem = limits.pattern_memory_bytes_max
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is not a pattern in RE2 syntax: {text}") from None
    if compiled.programsize > limits.pattern_program_max:
        raise ValueError("is too expensive a pattern; shorten its repetitions")
    return compiled


class Patterns:
    """Compiled patterns, the most recently used `patterns_cached_max`.  For one thread at a time."""

    def __init__(self, limits: ConditionLimits) -> None:
        self._limits = limits
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def found(self, pattern: str, text: bytes) -> bool | None:
        """None when the pattern does not compile, which can only be one stored under looser limits."""
        compiled = self._compiled.get(pattern)
        if compiled is not None:
            self._compiled.move_to_end(pattern)
        else:
            try:
                compiled = compile_pattern(pattern, self._limits)
            except ValueError:
                return None
            self._compiled[pattern] = compiled
            if len(self._compiled) > self._limits.patterns_cached_max:
                self._compiled.popitem(last=False)
        return compiled.search(text) is not None
