"""How does untrusted text travel in a prompt?

As JSON, so that it can't end its quotation, and without the words that chat templates give a meaning: a server that parses
them also inside messages would let a text end its turn.  It must not decide what is shown to a model.
"""

import json
import re
from typing import Any

_TEMPLATE_WORD = re.compile(r"<(?=[|\uff5c/]|s>|start_of|end_of|think)|\[(?=/?INST\]|/?SYS)")


def as_data(value: Any) -> str:
    """One line of JSON that means `value` and holds no word of a chat template."""
    plain = json.dumps(value, ensure_ascii=False)
    return _TEMPLATE_WORD.sub(lambda match: f"\\u{ord(match.group()):04x}", plain)
