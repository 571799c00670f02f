"""`hindsight reembed`, killed by itself like kill -9 at one chosen line.

python reembed_and_die.py MODULE:QUALNAME before|after N ARGUMENTS...
"""

import asyncio
import functools
import importlib
import os
import signal
import sys
from typing import Any


def wrapped(real: Any, moment: str, number: int) -> Any:
    calls = 0

    @functools.wraps(real)
    async def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await real(*args, **kwargs)
        if calls == number and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    assert asyncio.iscoroutinefunction(real)
    return dying


def main() -> None:
    place, moment, number, *arguments = sys.argv[1:]
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, wrapped(getattr(owner, name), moment, int(number)))
    from memory_service.__main__ import main as hindsight

    sys.argv = ["hindsight", *arguments]
    hindsight()


if __name__ == "__main__":
    main()
