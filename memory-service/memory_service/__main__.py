"""The `hindsight` command: serve · migrate · reindex · reembed · job · export · import · keys · doctor, and what other packages add.

Local-stack adds up, down, status and logs through the entry-point group `hindsight.commands`.  Commands typed beside a
running local stack find its URLs in HINDSIGHT_HOME/stack.env.
"""

import asyncio
import logging
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn
from uuid import UUID

import typer

from memory_service.errors import HindsightError, SetupRefused

if TYPE_CHECKING:
    from memory_service.settings import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
keys_app = typer.Typer(no_args_is_help=True, help="API keys: only hashes are stored.")
app.add_typer(keys_app, name="keys")


def settings_beside_stack() -> "Settings":
    from memory_service.settings import load_settings, stack_env_file  # a sixth of a second that `up` need not wait for

    return load_settings(stack_env_file())


@app.command()
def serve(
    wait_for_stores: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="wait so long for stores that start beside the service")
    ] = 0.0,
) -> None:
    """Run the memory-service."""
    from memory_service.launched import serve as run

    run(wait_for_stores)


@app.command()
def migrate() -> None:
    """Bring the database to this version, and store HINDSIGHT_API_KEY as an admin key when it is set."""
    from memory_service.migrating import migrate as run

    run(settings_beside_stack(), say=typer.echo)


@app.command()
def reindex(
    replace: Annotated[
        bool, typer.Option("--replace", help="drop the old vectors first; needed after changing the embedding model")
    ] = False,
) -> None:
    """Rebuild all vectors from Postgres, with a progress bar."""
    from memory_service.reindexing import reindex as run

    asyncio.run(run(settings_beside_stack(), replace=replace))


@app.command("job")
def job_command(
    name: Annotated[str, typer.Argument(help="decay, purge, reconcile, reindex, …; GET /v1/maintenance lists them")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would do and why; change nothing")] = False,
    tenant: Annotated[str | None, typer.Option(help="only this tenant; without it all of them")] = None,
) -> None:
    """Run a maintenance job now and say what it did."""
    from memory_service.maintaining import run_job

    run = run_job(settings_beside_stack(), name, tenant=tenant, dry_run=dry_run, say=typer.echo)
    if not asyncio.run(run):
        raise typer.Exit(1)


@app.command()
def reembed(
    to: Annotated[
        str | None, typer.Option("--to", metavar="MODEL", help="its name or folder; - is the provider's own model")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="bundled, onnx, sentence-transformers, openai or hash; default: as configured")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="of an OpenAI-compatible endpoint")] = None,
    revision: Annotated[str | None, typer.Option(help="of a model of the hub")] = None,
    dimensions: Annotated[int | None, typer.Option(min=1, help="where the model can be cut")] = None,
    query_prefix: Annotated[str | None, typer.Option(help="before queries; default: the model's own")] = None,
    passage_prefix: Annotated[str | None, typer.Option(help="before memories; default: the model's own")] = None,
    skip_failed: Annotated[
        bool, typer.Option("--skip-failed", help="switch although some could not be embedded")
    ] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="serve with the model before this one again")] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="remove the vectors of the model before this one")
    ] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="give up a change that has not been switched to")] = False,
) -> None:
    """Change the embedding model while the service runs.  The same command again goes on where a run was cut off.

    The key of an endpoint that is not the configured one is HINDSIGHT_EMBEDDING_NEXT_API_KEY, here and for the services.
    """
    from memory_service import reembedding

    if sum((to is not None, rollback, drop_old, abandon)) != 1:
        refuse("name one of --to MODEL, --rollback, --drop-old and --abandon")
    if to is None and (provider, base_url, revision, dimensions, query_prefix, passage_prefix, skip_failed) != (
        *(None,) * 6,
        False,
    ):
        refuse("the other options belong to --to")
    settings = settings_beside_stack()
    if to is not None:
        chosen = reembedding.wanted_model(
            settings, to, provider, base_url, revision, dimensions, query_prefix, passage_prefix
        )
        with reembedding.bar() as progress:
            asyncio.run(reembedding.reembed(settings, chosen, skip_failed=skip_failed, progress=progress))
    elif rollback:
        with reembedding.bar() as progress:
            asyncio.run(reembedding.rollback(settings, progress=progress))
    else:
        asyncio.run((reembedding.drop_old if drop_old else reembedding.abandon)(settings, typer.echo))


@app.command("export")
def export_command(
    user: Annotated[str, typer.Option("--user", help="whose memory")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the file to write; - is standard output")] = Path("-"),
    url: Annotated[str | None, typer.Option(envvar="HINDSIGHT_SERVICE_URL", help="the service's address")] = None,
) -> None:
    """Write everything of a user to a file of JSON lines.  HINDSIGHT_API_KEY holds the key, where one is needed."""
    from memory_service.exporting import export

    lines = export(settings_beside_stack(), user_id=user, path=output, url=url)
    typer.echo(f"{lines} lines exported", err=True)


@app.command("import")
def import_command(
    file: Annotated[Path | None, typer.Argument(help="an export, or seeds: JSON lines")] = None,
    seeds: Annotated[bool, typer.Option("--seeds", help="the lessons that come with Hindsight, for *shared")] = False,
    user: Annotated[str | None, typer.Option("--user", help="import all lines for this user")] = None,
    url: Annotated[str | None, typer.Option(envvar="HINDSIGHT_SERVICE_URL", help="the service's address")] = None,
) -> None:
    """Take in a file of JSON lines.  What is there already stays as it is, so importing twice adds nothing."""
    from memory_service.importing import import_file

    if (file is None) != seeds:
        refuse("name either a file or --seeds")
    settings = settings_beside_stack()
    report = import_file(settings, file, user_id=user, url=url)
    for line in report.lines():
        typer.echo(line)
    if not report.good:
        raise typer.Exit(1)


@keys_app.command("create")
def keys_create(
    role: Annotated[str, typer.Option(help="reader, writer or admin")] = "writer",
    tenant: Annotated[str, typer.Option(help="whose memories the key opens")] = "default",
    user: Annotated[str | None, typer.Option(help="the only user_id the key may act for")] = None,
    name: Annotated[str, typer.Option(help="a name to tell keys apart")] = "",
    rate: Annotated[int | None, typer.Option(min=1, help="requests a minute")] = None,
) -> None:
    """Create a key and show it once."""
    from memory_service import keyring

    if role not in ("reader", "writer", "admin"):
        refuse("--role must be reader, writer or admin")
    chosen: Literal["reader", "writer", "admin"] = role  # type: ignore[assignment]
    text = asyncio.run(
        keyring.create(settings_beside_stack(), role=chosen, tenant=tenant, user_id=user, name=name, rate=rate)
    )
    typer.echo(text)
    typer.echo("This is the only time the key is shown.", err=True)


@keys_app.command("list")
def keys_list() -> None:
    """List keys, without the keys."""
    from memory_service import keyring

    for line in asyncio.run(keyring.listing(settings_beside_stack())):
        typer.echo(line)


@keys_app.command("revoke")
def keys_revoke(key_id: str) -> None:
    """Revoke a key by its id."""
    from memory_service import keyring

    try:
        revoked = asyncio.run(keyring.revoke(settings_beside_stack(), UUID(key_id)))
    except ValueError:
        revoked = False
    if not revoked:
        refuse(f"there is no active key with the id {key_id}")
    typer.echo(f"revoked {key_id}")


@app.command()
def doctor() -> None:
    """Check the set-up and each store, and say what to do."""
    from memory_service.checkup import checkup

    if not asyncio.run(checkup(settings_beside_stack(), say=typer.echo)):
        raise typer.Exit(1)


@app.command()
def review(
    user: Annotated[str | None, typer.Option("--user", help="whose searches; without it those of all users")] = None,
    days: Annotated[int | None, typer.Option("--days", help="how far to look back; default 30")] = None,
    tenant: Annotated[str, typer.Option(help="whose users")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of tables")] = False,
) -> None:
    """Show what searches found, what they never find and what is found but never used."""
    from memory_service import reviewing

    shown = reviewing.print_json if as_json else reviewing.print_tables
    reviewing.review(settings_beside_stack(), shown, tenant=tenant, user_id=user, days=days)


def refuse(text: str) -> NoReturn:
    typer.echo(f"hindsight: {text}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Entry point of the `hindsight` script."""
    for point in entry_points(group="hindsight.commands"):
        extra = point.load()
        app.registered_commands.extend(extra.registered_commands)
        app.registered_groups.extend(extra.registered_groups)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # its retries; the command says once what is down
    try:
        app()
    except (SetupRefused, HindsightError) as error:
        logging.getLogger(__name__).debug("refused", exc_info=True)
        print(f"hindsight: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
