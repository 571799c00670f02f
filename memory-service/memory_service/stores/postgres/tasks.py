"""What is left of a task when its working memory is gone?  The table task_run, and what earlier runs did with a tool.

Statements only; tasks/ decides.  A row belongs to one run: every change names the run that it is about, so that a finish that
is late can't touch the row of a task that was started anew.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Json as JsonText
from psycopg.types.json import Jsonb

from memory_service.domain import Json
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

EndedAs = Literal["success", "failure", "aborted"]
COLUMNS = (
    "tenant", "user_id", "task_id", "run_id", "agent_id", "session_id", "goal", "task_type", "started_at", "outcome",
    "closing", "episode_id", "judged_ids", "finished_at", "answer",
)  # fmt: skip
OF_RUN = "tenant = %(t)s AND user_id = %(u)s AND task_id = %(task)s AND run_id = %(run)s"


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One row.  `closing` is the run as it was when finish began, `answer` what finish answered."""

    tenant: str
    user_id: str
    task_id: str
    run_id: UUID
    agent_id: str | None
    session_id: str | None
    goal: str
    task_type: str | None
    started_at: datetime
    outcome: EndedAs | None = None
    closing: Json | None = None
    episode_id: UUID | None = None
    judged_ids: tuple[UUID, ...] = ()
    finished_at: datetime | None = None
    answer: Json | None = None

    @property
    def finished(self) -> bool:
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Calls of one tool in one memory, in the order of the memory."""

    memory_id: UUID
    occurred_at: datetime
    calls: list[Json] = field(default_factory=list)


async def get(connection: Connection, tenant: str, user_id: str, task_id: str) -> TaskRun | None:
    row = await fetch_one(
        connection,
        f"SELECT {', '.join(COLUMNS)} FROM task_run WHERE tenant = %(t)s AND user_id = %(u)s AND task_id = %(task)s",
        {"t": tenant, "u": user_id, "task": task_id},
    )
    if row is None:
        return None
    values = dict(zip(COLUMNS, row, strict=True))
    return TaskRun(**{**values, "judged_ids": tuple(values["judged_ids"])})


async def begin(connection: Connection, run: TaskRun, instead_of: UUID | None = None) -> None:
    """The row of a run that begins; of earlier runs with this task_id only `instead_of` is replaced.  Repeating changes nothing."""
    await execute(
        connection,
        """INSERT INTO task_run AS t (tenant, user_id, task_id, run_id, agent_id, session_id, goal, task_type, started_at)
            VALUES (%(tenant)s, %(user)s, %(task)s, %(run)s, %(agent)s, %(session)s, %(goal)s, %(type)s, %(at)s)
            ON CONFLICT (tenant, user_id, task_id) DO UPDATE
            SET run_id = excluded.run_id, agent_id = excluded.agent_id, session_id = excluded.session_id,
                goal = excluded.goal, task_type = excluded.task_type, started_at = excluded.started_at, outcome = NULL,
                closing = NULL, episode_id = NULL, judged_ids = '{}', finished_at = NULL, answer = NULL
            WHERE t.run_id <> excluded.run_id AND t.run_id = %(instead_of)s::uuid""",
        {
            "tenant": run.tenant,
            "user": run.user_id,
            "task": run.task_id,
            "run": run.run_id,
            "agent": run.agent_id,
            "session": run.session_id,
            "goal": run.goal,
            "type": run.task_type,
            "at": run.started_at,
            "instead_of": instead_of,
        },
    )


async def begin_closing(connection: Connection, run: TaskRun, outcome: EndedAs, closing: Json) -> bool:
    """Keep the run as it is now; the first finish decides.  False when another one was first, or the run is gone."""
    parameters = {**_of(run), "outcome": outcome, "closing": Jsonb(closing)}
    rows = await execute(
        connection,
        f"UPDATE task_run SET outcome = %(outcome)s, closing = %(closing)s WHERE {OF_RUN} AND outcome IS NULL",
        parameters,
    )
    return rows == 1


async def note_episode(connection: Connection, run: TaskRun, episode_id: UUID) -> bool:
    """In the transaction that writes the episode.  False when the run has one already, or is gone: roll back."""
    rows = await execute(
        connection,
        f"UPDATE task_run SET episode_id = %(id)s WHERE {OF_RUN} AND episode_id IS NULL AND finished_at IS NULL",
        {**_of(run), "id": episode_id},
    )
    return rows == 1


async def note_judged(connection: Connection, run: TaskRun, experience_id: UUID) -> bool:
    """In the transaction that moves an experience's confidence.  False when this run has moved it already: roll back."""
    rows = await execute(
        connection,
        f"""UPDATE task_run SET judged_ids = judged_ids || %(id)s::uuid
            WHERE {OF_RUN} AND NOT %(id)s::uuid = ANY (judged_ids) AND finished_at IS NULL""",
        {**_of(run), "id": experience_id},
    )
    return rows == 1


async def end(connection: Connection, run: TaskRun, answer: Json, at: datetime) -> bool:
    """In the transaction of the last write: the run is finished and this was answered.  False when it was already: roll back."""
    rows = await execute(
        connection,
        f"""UPDATE task_run SET finished_at = %(at)s, answer = %(answer)s, closing = NULL
            WHERE {OF_RUN} AND finished_at IS NULL AND outcome IS NOT NULL""",
        {**_of(run), "at": at, "answer": JsonText(answer)},
    )
    return rows == 1


async def tool_uses(
    connection: Connection, tenant: str, user_ids: Sequence[str], tool: str, now: datetime, memories: int, calls: int
) -> list[ToolUse]:
    """What the newest `memories` memories with tool calls tell of this tool, newest first, at most `calls` of each.

    Bounded by how many are read, whatever other users and tools have: the partial index episodic_memory_tool_use is walked.
    """
    rows = await fetch_all(
        connection,
        """SELECT m.id, m.occurred_at, (SELECT jsonb_agg(s.c ORDER BY s.place) FROM (
               SELECT c, place FROM jsonb_array_elements(m.tool_calls) WITH ORDINALITY AS e(c, place)
               WHERE c ->> 'tool' = %(tool)s ORDER BY place LIMIT %(calls)s) AS s)
           FROM unnest(%(users)s::text[]) AS u(user_id) CROSS JOIN LATERAL (
               SELECT o.id, o.occurred_at, o.tool_calls FROM episodic_memory o
               WHERE o.tenant = %(t)s AND o.user_id = u.user_id AND o.tool_calls <> '[]' AND o.state IN ('active', 'cold')
                 AND (o.expires_at IS NULL OR o.expires_at > %(now)s)
               ORDER BY o.occurred_at DESC LIMIT %(memories)s) AS m
           WHERE m.tool_calls @> jsonb_build_array(jsonb_build_object('tool', %(tool)s::text))
           ORDER BY m.occurred_at DESC""",
        {"t": tenant, "users": list(user_ids), "tool": tool, "now": now, "memories": memories, "calls": calls},
    )
    return [ToolUse(row[0], row[1], row[2] or []) for row in rows]


@dataclass(frozen=True, slots=True)
class RetrievedFor:
    """A context that was made for a run, and what of one kind it held."""

    id: UUID
    at: datetime
    ids: tuple[UUID, ...]


async def retrieved_for(
    connection: Connection, run: TaskRun, what: Literal["memory", "experience"], limit: int
) -> list[RetrievedFor]:
    """Contexts that were made for this run and the memories or experiences that each held, newest first."""
    rows = await fetch_all(
        connection,
        """SELECT id, at,
               ARRAY(SELECT (h ->> 'id')::uuid FROM jsonb_array_elements(hits) AS h WHERE h ->> 'what' = %(what)s)
           FROM retrieval_log WHERE tenant = %(t)s AND user_id = %(u)s AND task_id = %(task)s AND at >= %(started_at)s
           ORDER BY at DESC LIMIT %(limit)s""",
        {**_of(run), "started_at": run.started_at, "what": what, "limit": limit},
    )
    return [RetrievedFor(row[0], row[1], tuple(row[2])) for row in rows]


# Erasing.


def user_mark(tenant: str, user_id: str) -> UUID:
    """Marks kept answers that tell of this user's tasks, so that erasing the user erases them: they stand for no memory."""
    return UUID(bytes=hashlib.sha256(f"tasks\0{tenant}\0{user_id}".encode()).digest()[:16])


async def forget_episodes(connection: Connection, tenant: str, episode_ids: Sequence[UUID]) -> None:
    """The episodes are being erased: what their runs still say of them goes too; that the tasks are finished stays."""
    await execute(
        connection,
        """UPDATE task_run SET episode_id = NULL, goal = '', closing = NULL,
               answer = jsonb_set(jsonb_set(answer::jsonb, '{episode}', 'null'), '{review,reasons}', '[]')::json
           WHERE tenant = %(t)s AND episode_id = ANY(%(ids)s)""",
        {"t": tenant, "ids": list(episode_ids)},
    )


async def erase_user(connection: Connection, tenant: str, user_id: str) -> int:
    """Remove a user's runs, and the answers kept about them → how many runs there were."""
    parameters = {"t": tenant, "u": user_id, "mark": user_mark(tenant, user_id)}
    await execute(
        connection,
        """UPDATE idempotency_key SET status = 410, response = NULL
           WHERE tenant = %(t)s AND memory_ids @> ARRAY[%(mark)s::uuid]""",
        parameters,
    )
    return await execute(connection, "DELETE FROM task_run WHERE tenant = %(t)s AND user_id = %(u)s", parameters)


def _of(run: TaskRun) -> dict[str, Any]:
    return {"t": run.tenant, "u": run.user_id, "task": run.task_id, "run": run.run_id}
