"""How does the agent reach its memory?  The task loop of memory-service, over HTTP, as any agent would use it.

`learn` decides whether finished tasks are told to the service; without it the store stays as it was, except for the working
memory of the task itself.  It must not interpret what it gets; reader.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.loop.agent import Hint, Step, step_json
from benchmarks.loop.tasks import Task


@dataclass(slots=True)
class LoopMemory:
    """One task's use of the service.  `count_tokens` counts like the service does."""

    client: httpx.AsyncClient
    user_id: str
    count_tokens: Callable[[str], int]
    learn: bool
    label: str = ""  # tells runs of the same task by the same user apart
    tokens: int = 0
    asked: int = 0
    degraded: int = 0  # answers that came without all that is known, because a store was late
    finished: dict[str, Any] = field(default_factory=dict)
    _path: str = ""

    async def start(self, task: Task) -> None:
        self._path = f"{task.id}{self.label}"
        body = {"goal": task.goal, "task_type": task.task_type, "task_id": self._path}
        context = (await self._post("/v1/tasks", body))["context"]
        self.tokens += context["tokens"]

    async def advise(self, call: Any) -> Sequence[Hint]:
        body = {"tool": call.tool, "arguments": dict(call.arguments)}
        answer = await self._post(f"/v1/tasks/{self._path}/advice", body)
        self.asked += 1
        self.degraded += bool(answer["degraded"])
        self.tokens += self.count_tokens(answer["text"])
        return [
            Hint(hint["text"], f"{hint['type']} {hint['source_id']} {at}") for at, hint in enumerate(answer["hints"])
        ]

    async def note(self, step: Step) -> None:
        await self._post(f"/v1/working-memory/{self._path}/steps", dict(step_json(step)))

    async def finish(self, succeeded: bool) -> None:
        if self.learn:
            self.finished = await self._post(
                f"/v1/tasks/{self._path}/finish", {"outcome": "success" if succeeded else "failure"}
            )

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.post(path, json={"user_id": self.user_id, **body})
        answer.raise_for_status()
        return answer.json()  # type: ignore[no-any-return]
