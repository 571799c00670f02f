"""How does text from a run enter a lesson without carrying secrets or breaking out of the prompt it is shown in?

Masks secrets, removes control characters, folds white space and disarms the marks that close or open blocks.  It must not
decide what is quoted.
"""

import re

from memory_service.experience.distill_rules import DistillRules
from memory_service.secrets import MASK

__all__ = ["MASK", "cut", "is_secret_name", "masked", "safe_text"]

# Control and format characters (bidi overrides and zero-width among them), except the white space folded below.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_SPACE = re.compile(r"\s+")
# Marks by which prompts delimit blocks.  They are written differently, so a quotation can't close the block it stands in.
_MARKS = (("<", "‹"), (">", "›"), ("```", "'''"), ("~~~", "~"))
_HEADING = re.compile(r"(?:^|(?<=\s))(?:#{2,}|={3,}|-{3,}|\*{3,})(?=\s|$|\w)")


def masked(text: str, rules: DistillRules) -> str:
    """The text of a run with every secret replaced by a mask."""
    return rules.secrets.masked_run(text)


def safe_text(text: str, rules: DistillRules, chars_max: int) -> str:
    """One line of at most `chars_max` characters; an ellipsis says that it was cut, at a word where one is near."""
    text = _SPACE.sub(" ", _CONTROL.sub("", masked(text, rules))).strip()
    for mark, harmless in _MARKS:
        text = text.replace(mark, harmless)
    return cut(_HEADING.sub("", text).strip(), chars_max)


def cut(text: str, chars_max: int) -> str:
    if len(text) <= chars_max:
        return text
    head = text[: max(0, chars_max - 1)]
    at_word = head.rfind(" ")
    return f"{head[:at_word] if at_word > len(head) * 3 // 4 else head}…"


def is_secret_name(name: str, rules: DistillRules) -> bool:
    return rules.secrets.names_one(name)
