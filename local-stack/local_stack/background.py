"""How does `up --detach` start the supervisor?  `python -m local_stack.background HOME PORT GATEWAY_PORT GATEWAY COMMANDS`.

GATEWAY is 1 or 0, COMMANDS a JSON object of other programs in place of ours (tests). Only `up` calls it, with arguments that it has
checked: parsing them once more would import the command line once more, a quarter of a second that the start would wait for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from local_stack.console import Screen
from local_stack.errors import StackError
from local_stack.home import Home, open_home
from local_stack.supervisor import Commands, Options, Supervisor


def arguments(home: Home, options: Options, given: Mapping[str, Sequence[str]]) -> list[str]:
    """What `main` reads. `given` are the commands of `options` that are not ours."""
    gateway = "1" if options.gateway else "0"
    return [str(home.root), str(options.port), str(options.gateway_port), gateway, json.dumps(given)]


def main(home: str, port: str, gateway_port: str, gateway: str, commands: str) -> int:
    """The exit code of the run; an error is printed."""
    screen = Screen()
    options = Options(int(port), int(gateway_port), gateway == "1", Commands(**json.loads(commands)))
    try:
        return Supervisor(open_home(Path(home)), options, screen).run()
    except StackError as error:
        screen.error(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
