"""How do other features tell a task's working memory what they learned?  Rules only, no model.

Facts and failures are copies of long-term memories and go when those go.  Must not decide what is worth noting.
"""

from collections.abc import Sequence
from uuid import UUID

from memory_service.domain import Caller
from memory_service.errors import NotFound
from memory_service.working.items import Fact, FailedAttempt, Patch
from memory_service.working.service import WorkingMemory
from memory_service.working.state import memory_source


class TaskNotebook:
    """Notes about running tasks.  Raises StoreUnavailable; a task that is gone is not brought back."""

    def __init__(self, working: WorkingMemory) -> None:
        self._working = working

    async def lives(self, caller: Caller, user_id: str, task_id: str) -> bool:
        try:
            await self._working.get(caller, user_id, task_id)
        except NotFound:
            return False
        return True

    async def note(
        self,
        caller: Caller,
        user_id: str,
        task_id: str,
        facts: Sequence[tuple[str, UUID]] = (),
        failures: Sequence[tuple[str, str | None, UUID]] = (),
        steps: Sequence[str] = (),
    ) -> None:
        """Add facts and failures with the memory that holds each, and steps.  Raises NotFound, InvalidFields, TooLarge.

        A failure is what was tried, and the error that it ended with.
        """
        patch = Patch(
            confirmed_facts=[Fact(text, memory_source(str(memory_id))) for text, memory_id in facts],
            failed_attempts=[
                FailedAttempt(action, error=error, source=memory_source(str(memory_id)))
                for action, error, memory_id in failures
            ],
            recent_steps=list(steps),
        )
        await self._working.patch(caller, user_id, task_id, patch)
