"""How does a supervisor start the service or the migrations?  `python -m memory_service.launched serve SECONDS` or `migrate`.

The same as `hindsight serve --wait-for-stores SECONDS` and `hindsight migrate`, without the command line: importing it, and what other
packages add to it, takes a quarter of a second of processor time a process, and the start waits for it.
"""

import gc
import logging
import sys

from memory_service.errors import HindsightError, SetupRefused


def serve(stores_wait_s: float) -> None:
    """Run the service.  `stores_wait_s`: how long it waits for stores that start beside it."""
    gc.disable()  # until it serves: what is imported stays, and looking through it costs a tenth of the start
    from memory_service.serving import run
    from memory_service.settings import load_settings

    run(load_settings(), stores_wait_s)


def main(arguments: list[str]) -> None:
    """Exits with 2 and one line when the set-up is refused."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # its retries; the service says once what is down
    try:
        match arguments:
            case ["serve", seconds]:
                serve(float(seconds))
            case ["migrate"]:
                from memory_service.migrating import migrate
                from memory_service.settings import load_settings

                migrate(load_settings(), say=print)
            case _:
                raise SetupRefused(f"expected serve SECONDS or migrate, not {arguments}")
    except (SetupRefused, HindsightError) as error:
        sys.stderr.write(f"hindsight: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
