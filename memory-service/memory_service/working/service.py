"""What is going on in this task?  The one place where working memory is read and written for a caller.

Needs Redis only, so it answers with Postgres and Qdrant down.  Never calls a model, never touches long-term memories.
"""

from dataclasses import dataclass
from datetime import timedelta

from memory_service.access import require_user, require_writer
from memory_service.domain import SHARED_USER, Caller, Clock, utc_now
from memory_service.errors import InvalidFields, NotFound
from memory_service.stores.redis import Once, TaskKey, WorkingStore
from memory_service.working import codec
from memory_service.working.checks import checked_id, refuse_unstorable
from memory_service.working.commits import Change, TaskMemory, TaskWriter, answer_text
from memory_service.working.context import CountTokens, TaskContext, build_context
from memory_service.working.items import Patch, Step, WorkingState
from memory_service.working.settings import Working
from memory_service.working.state import apply_patch, copied_memories, forget_memory, record_step


@dataclass(frozen=True, slots=True)
class RepeatableRequest:
    """An Idempotency-Key and the bytes of the request that came with it."""

    key: str
    body: bytes


class WorkingMemory:
    """Working memory of all tasks.  Every method raises StoreUnavailable when Redis is down.

    With a caller, also NotFound for what is not there and Forbidden for a user that the key is not bound to.
    """

    def __init__(
        self, store: WorkingStore, settings: Working, count_tokens: CountTokens, clock: Clock = utc_now
    ) -> None:
        self._store = store
        self._settings = settings
        self._count_tokens = count_tokens
        self._clock = clock
        self._writer = TaskWriter(store, settings, clock)

    async def replace(self, caller: Caller, user_id: str, task_id: str, contents: Patch) -> TaskMemory:
        """Create the task, or replace all that it holds.  Raises InvalidFields, TooLarge."""
        key = self._writable(caller, user_id, task_id)
        self._check_patch(contents)
        now = self._clock()
        state = apply_patch(WorkingState(task_id, user_id), contents, now, self._settings)
        ttl_ms = (contents.ttl_seconds or self._settings.ttl_seconds_default) * 1000
        return await self._writer.write(key, Change(lambda _: state, creates=True, ttl_ms=ttl_ms))

    async def get(self, caller: Caller, user_id: str, task_id: str) -> TaskMemory:
        """The task; reading renews its life."""
        key = self._key(caller, user_id, task_id)
        stored, _ = await self._store.read(key)
        if stored is None:
            raise NotFound
        memory = TaskMemory(stored.state, self._clock() + timedelta(milliseconds=stored.left_ms))
        if codec.may_hold_copies(stored.state):  # the note must outlive the task that was just renewed
            await self._store.note_copies(key, copied_memories(memory.state))
        return memory

    async def delete(self, caller: Caller, user_id: str, task_id: str) -> None:
        key = self._writable(caller, user_id, task_id)
        if not await self._store.delete(key):
            raise NotFound

    async def patch(self, caller: Caller, user_id: str, task_id: str, patch: Patch) -> TaskMemory:
        """Append, merge, set and remove as `patch` says, all or nothing.  Raises InvalidFields, TooLarge."""
        key = self._writable(caller, user_id, task_id)
        self._check_patch(patch)
        now = self._clock()
        ttl_ms = patch.ttl_seconds * 1000 if patch.ttl_seconds else None

        def apply(state: WorkingState | None) -> WorkingState:
            return apply_patch(existing(state), patch, now, self._settings)

        return await self._writer.write(key, Change(apply, ttl_ms=ttl_ms))

    async def record_step(
        self, caller: Caller, user_id: str, task_id: str, step: Step, repeatable: RepeatableRequest | None = None
    ) -> TaskMemory:
        """Note one tool call.  With an Idempotency-Key it is noted once, however often it is sent.

        Raises TaskFinished after the task's finish, IdempotencyMismatch for a key that came with another request, Gone when
        its answer was erased since.
        """
        key = self._writable(caller, user_id, task_id)
        refuse_unstorable(step)
        now = self._clock()
        once = None
        if repeatable is not None:
            owner = caller.key_id or "local"
            once = Once.of(f"{owner}\0{repeatable.key}", key.member.encode() + b"\0" + repeatable.body)

        def apply(state: WorkingState | None) -> WorkingState:
            return record_step(existing(state), step, now, self._settings)

        return await self._writer.write(key, Change(apply, once=once, unfinished=True))

    async def context(self, caller: Caller, user_id: str, task_id: str, max_tokens: int | None = None) -> TaskContext:
        """The task as text for a prompt in at most `max_tokens` of the embedding model's tokenizer."""
        budget = self._settings.context_tokens_default if max_tokens is None else max_tokens
        if not 1 <= budget <= self._settings.context_tokens_max:
            raise InvalidFields.of("max_tokens", f"must be 1 to {self._settings.context_tokens_max}")
        memory = await self.get(caller, user_id, task_id)
        return build_context(memory.state, budget, self._count_tokens, self._settings)

    async def delete_user(self, tenant: str, user_id: str) -> int:
        """Erase all tasks of a user and the answers kept about them → how many tasks lived.  For the erasure of users."""
        return await self._store.delete_user(tenant, user_id)

    async def erase_copies(self, tenant: str, user_id: str, memory_id: str) -> int:
        """Remove every fact that was copied from this memory of this user → in how many tasks.

        A memory of the shared pool may have been copied into the tasks of any user of the tenant.  Lives are not renewed.
        """
        memory_id = memory_id.casefold()
        keys = {*await self._store.tasks_with_copy(tenant, memory_id)}
        if user_id != SHARED_USER:
            keys = {key for key in keys if key.user_id == user_id} | {*await self._store.tasks_of(tenant, user_id)}
        changed = [
            key for key in sorted(keys, key=lambda k: (k.user_id, k.task_id)) if await self._forget(key, memory_id)
        ]
        needle = memory_id.encode()
        for owner in sorted({key.user_id for key in keys} | ({user_id} - {SHARED_USER})):
            await self._store.blank_answers(tenant, owner, lambda answer: needle in answer_text(answer).lower())
        return len(changed)

    async def _forget(self, key: TaskKey, memory_id: str) -> bool:
        """Remove the copies from one task; False when it holds none or is gone."""
        stored, _ = await self._store.read(key, renew=False)
        if stored is None or memory_id not in copied_memories(codec.decode(stored.state)):
            return False
        try:
            await self._writer.write(key, Change(lambda state: forget_memory(existing(state), memory_id), renew=False))
        except NotFound:
            return False
        return True

    # Who may touch what.

    def _key(self, caller: Caller, user_id: str, task_id: str) -> TaskKey:
        """The task's place.  Raises Forbidden for a key that is bound to another user, whether or not the task exists."""
        checked_id("user_id", user_id)
        checked_id("task_id", task_id)
        require_user(caller, user_id)
        return TaskKey(caller.tenant, user_id, task_id)

    def _writable(self, caller: Caller, user_id: str, task_id: str) -> TaskKey:
        require_writer(caller)
        return self._key(caller, user_id, task_id)

    def _check_patch(self, patch: Patch) -> None:
        refuse_unstorable(patch)
        low, high = self._settings.ttl_seconds_min, self._settings.ttl_seconds_max
        if patch.ttl_seconds is not None and not low <= patch.ttl_seconds <= high:
            raise InvalidFields.of("ttl_seconds", f"must be {low} to {high}")


def existing(state: WorkingState | None) -> WorkingState:
    """The state of a task that must be there already."""
    if state is None:
        raise NotFound
    return state
