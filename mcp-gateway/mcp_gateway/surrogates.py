"""What happens to half a surrogate pair in a JSON message? It becomes NUL, which the argument check then refuses by name.

The SDK's JSON parser rejects the whole message instead: over HTTP without saying which argument, on stdio without any
answer, so that the client waits for ever. Pure.
"""

from __future__ import annotations

import re

# One escape sequence at a time, so that an escaped backslash before "ud800" is not taken for one.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def neutralise(message: bytes) -> bytes:
    if b"\\ud" not in message and b"\\uD" not in message:
        return message
    return _ESCAPE.sub(lambda match: b"\\u0000" if match["half"] else match[0], message)
