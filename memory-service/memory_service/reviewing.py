"""Does searching help, and where does it not?  `hindsight review`: the log of retrievals, read once.

Asks Postgres alone, so it needs no running service.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from uuid import UUID

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory_service.api.body import text_problem
from memory_service.domain import Json, utc_now
from memory_service.errors import SetupRefused
from memory_service.settings import Section, Settings, load_tunables
from memory_service.shapes import to_json
from memory_service.stores.postgres import retrieval_review, schema
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.postgres.retrieval_review import (
    DegradedLane,
    EmptyQuery,
    Rate,
    Span,
    Unretrieved,
    Unused,
)
from memory_service.timestamps import time_text

WIDTH_MIN = 100  # of output that goes to no terminal
ID_CHARS = 36


def console_for() -> Console:
    """Standard output; wide enough for ids where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=max(WIDTH_MIN, console.width))


class ReviewNumbers(Section):
    """[review] of memory.toml."""

    days_default: int
    days_max: int
    rows_max: int
    text_chars_max: int
    retrieved_often_min: int
    counted_max: int


@dataclass(frozen=True, slots=True)
class RetrievalReview:
    """What the log tells of a span.  `unretrieved_count` counts to [review] counted_max."""

    span: Span
    weeks: Sequence[Rate]
    sources: Sequence[Rate]
    empty: Sequence[EmptyQuery]
    unretrieved: Sequence[Unretrieved]
    unretrieved_count: int
    unused: Sequence[Unused]
    lanes: Sequence[DegradedLane]


# Prints a review.
Shown = Callable[[RetrievalReview, ReviewNumbers], None]


def review(settings: Settings, shown: Shown, *, tenant: str, user_id: str | None, days: int | None) -> None:
    """Print what was found.  Raises SetupRefused for a number of days that can't be looked back, StoreUnavailable."""
    for option, text in (("--tenant", tenant), ("--user", user_id)):
        if text is not None and text_problem(text):
            raise SetupRefused(f"{option} {text_problem(text)}")
    numbers = load_tunables(settings).section("review", ReviewNumbers)
    chosen = numbers.days_default if days is None else days
    if not 1 <= chosen <= numbers.days_max:
        raise SetupRefused(f"--days must be 1 to {numbers.days_max}")
    now = utc_now()
    span = Span(tenant, user_id, now - timedelta(days=chosen), now)
    shown(asyncio.run(_opened(settings, span, numbers)), numbers)


async def reviewed(postgres: Postgres, span: Span, numbers: ReviewNumbers) -> RetrievalReview:
    """One question after the other, each in a statement of its own: a review must not hold up those who search."""
    most, chars, often = numbers.rows_max, numbers.text_chars_max, numbers.retrieved_often_min
    rows, count = await postgres.read(
        lambda c: retrieval_review.never_retrieved(c, span, chars, numbers.counted_max, most)
    )
    return RetrievalReview(
        span=span,
        weeks=await postgres.read(lambda c: retrieval_review.by_week(c, span)),
        sources=await postgres.read(lambda c: retrieval_review.by_source(c, span)),
        empty=await postgres.read(lambda c: retrieval_review.found_nothing(c, span, chars, most)),
        unretrieved=rows,
        unretrieved_count=count,
        unused=await postgres.read(lambda c: retrieval_review.never_used(c, span, often, chars, most)),
        lanes=await postgres.read(lambda c: retrieval_review.degraded_lanes(c, span, most)),
    )


async def _opened(settings: Settings, span: Span, numbers: ReviewNumbers) -> RetrievalReview:
    postgres = Postgres(settings.database_url, load_tunables(settings).stores)
    await postgres.open()
    try:
        if await postgres.read(schema.revision) != schema.REVISION:
            raise SetupRefused("the database is not at this version. Run: hindsight migrate")
        return await reviewed(postgres, span, numbers)
    finally:
        await postgres.close()


def print_json(found: RetrievalReview, _numbers: ReviewNumbers) -> None:
    """One object on a line of its own, for programs: the same lists, times in UTC."""
    typer.echo(to_json(review_json(found)))


def review_json(found: RetrievalReview) -> Json:
    """`{tenant, user_id, since, until, weeks, sources, empty, never_retrieved, never_retrieved_count, never_used, degraded}`."""
    span = found.span
    return {
        "tenant": span.tenant,
        "user_id": span.user_id,
        "since": time_text(span.since),
        "until": time_text(span.until),
        "weeks": [_row(one) for one in found.weeks],
        "sources": [_row(one) for one in found.sources],
        "empty": [_row(one) for one in found.empty],
        "never_retrieved": [_row(one) for one in found.unretrieved],
        "never_retrieved_count": found.unretrieved_count,
        "never_used": [_row(one) for one in found.unused],
        "degraded": [_row(one) for one in found.lanes],
    }


def _row(one: Rate | EmptyQuery | Unretrieved | Unused | DegradedLane) -> Json:
    """A row's fields by their names; days as YYYY-MM-DD, ids as text."""
    return {name: _plain_value(value) for name, value in asdict(one).items()}


def _plain_value(value: object) -> object:
    if isinstance(value, datetime):
        return time_text(value)
    return str(value) if isinstance(value, date | UUID) else value


def print_tables(found: RetrievalReview, numbers: ReviewNumbers) -> None:
    show(found, numbers, console_for())


def show(found: RetrievalReview, numbers: ReviewNumbers, console: Console) -> None:
    """Each list as a table; one that is empty is said to be."""
    span, often = found.span, numbers.retrieved_often_min
    who = "all users" if span.user_id is None else f"user {span.user_id}"
    console.print(_plain(f"Retrievals of {who} from {span.since:%Y-%m-%d} to {span.until:%Y-%m-%d} (UTC)"))
    _table(console, "Hit rate by week", RATE_COLUMNS, [_rate(one) for one in found.weeks], "nothing was asked")
    _table(console, "By source", RATE_COLUMNS, [_rate(one) for one in found.sources], "")
    _table(
        console,
        "Queries that found nothing",
        ("query", "times", "last"),
        [(one.query, str(one.times), _day(one.last_at)) for one in found.empty],
        "none",
    )
    count, most = found.unretrieved_count, numbers.counted_max
    many = f" ({count}{' or more' if count >= most else ''})" if count else ""
    title = f"Memories from before {span.since:%Y-%m-%d} that were never retrieved{many}"
    _table(
        console,
        title,
        ("memory", "user", "summary", "written"),
        [(str(one.id), one.user_id, one.summary, _day(one.created_at)) for one in found.unretrieved],
        "none",
    )
    _table(
        console,
        f"Memories retrieved {often} times or more, never used",
        ("memory", "user", "summary", "times", "last"),
        [(str(one.id), one.user_id, one.summary, str(one.times), _day(one.last_at)) for one in found.unused],
        "none",
    )
    lanes = [(one.lane, str(one.times), _day(one.last_at)) for one in found.lanes]
    _table(console, "Lanes that failed or were late", ("lane", "times", "last"), lanes, "none")


RATE_COLUMNS = ("", "retrievals", "found something", "used")
RIGHT = ("retrievals", "found something", "used", "times")


def _rate(one: Rate) -> tuple[str, ...]:
    name = one.name if isinstance(one.name, str) else f"{one.name:%Y-%m-%d}"
    return name, str(one.retrievals), _share(one.with_hits, one.retrievals), _share(one.used, one.retrievals)


def _share(some: int, of: int) -> str:
    """`12 (40 %)`"""
    return f"{some} ({100 * some / of:.0f} %)"


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d}"


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], empty: str) -> None:
    if not rows:
        if empty:
            console.print()
            console.print(_plain(f"{title}: {empty}"))
        return
    table = Table(title=_plain(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in RIGHT else "left",
            no_wrap=name != "summary",
            min_width=ID_CHARS if name == "memory" else None,
            max_width=ID_CHARS if name == "user" else None,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*map(_plain, row))
    console.print()
    console.print(table)


def _plain(text: str) -> Text:
    """Stored text is shown, never obeyed: no markup, no escape sequences, one line."""
    return Text("".join(c if c.isprintable() else " " for c in text))
