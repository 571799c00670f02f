"""memory-service, or another of its commands, killed by itself like kill -9 at one chosen line.

    python serve_and_die.py MODULE:QUALNAME before|after N [COMMAND ARGUMENTS...]

Wraps the named function; at its N-th call the process kills itself before or after the real work.  The product has no
such hooks: this file patches it from outside.
"""

import functools
import importlib
import inspect
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
    if not inspect.iscoroutinefunction(real):
        return wrapped_plain(real, moment, number)

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

    return dying


def wrapped_plain(real: Any, moment: str, number: int) -> Any:
    calls = 0

    @functools.wraps(real)
    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and moment == "before":
            die()
        result = real(*args, **kwargs)
        if calls == number and moment == "after":
            die()
        return result

    return dying


def main() -> None:
    place, moment, number, *command = sys.argv[1:]
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, wrapped(getattr(owner, name), moment, int(number)))
    if not command:
        run(load_settings())
        return
    from memory_service.__main__ import main as hindsight

    sys.argv = ["hindsight", *command]
    hindsight()


if __name__ == "__main__":
    main()
