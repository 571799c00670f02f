"""memory-service, killed by itself like kill -9 at one chosen line.

    python serve_and_die.py MODULE:QUALNAME before|after N

Wraps the named function; at its N-th call the process kills itself before or after the real work.  The product has no
such hooks: this file patches it from outside.
"""

import asyncio
import functools
import importlib
import os
import signal
import sys
from typing import Any

from memory_service.serving import run
from memory_service.settings import load_settings


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wrapped(real: Any, moment: str, number: int) -> Any:
    calls = 0

    @functools.wraps(real)
    async def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and moment == "before":
            die()
        result = await real(*args, **kwargs)
        if calls == number and moment == "after":
            die()
        return result

    assert asyncio.iscoroutinefunction(real)
    return dying


def main() -> None:
    place, moment, number = sys.argv[1:]
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, wrapped(getattr(owner, name), moment, int(number)))
    run(load_settings())


if __name__ == "__main__":
    main()
