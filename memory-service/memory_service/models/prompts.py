"""How does a prompt file become a system text and a template of the user's part?

The files live beside the features that use them; this only reads and fills them.
"""

import tomllib
from pathlib import Path
from string import Template

from memory_service.errors import SetupRefused


def read_prompt(path: Path, **filled: object) -> tuple[str, Template]:
    """(`system` with `filled` put in, `user` still to be filled).  Raises SetupRefused for a broken file or a missing word."""
    try:
        prompt = tomllib.loads(path.read_text(encoding="utf-8"))
        system = Template(prompt["system"].strip()).substitute(filled)
        return system, Template(prompt["user"].strip())
    except (OSError, ValueError, KeyError) as problem:
        raise SetupRefused(f"{path}: {problem}") from None
