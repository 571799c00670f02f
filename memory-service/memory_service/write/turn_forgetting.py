"""What of a session's buffer goes when a memory is erased?  What is left of the turn that the memory was made of.

The answer to a statement often repeats it.  Only takes out; it must not decide what is written.
"""

from uuid import UUID, uuid4

from memory_service.stores.session_buffer import SessionBuffer
from memory_service.write.turn_codec import held_of, payload_of
from memory_service.write.turn_plan import forgetting


async def forget_turns_of(buffer: SessionBuffer, tenant: str, user_id: str, memory_id: UUID) -> int:
    """Take out of the user's buffers what is left of turns that became this memory → how many messages.

    An empty message of the user stays, so that an answer that still comes is known as one.  Doing it again changes nothing.
    Raises StoreUnavailable.
    """
    count = 0
    for key in await buffer.sessions_of(tenant, user_id):
        holder = uuid4().hex
        before = [held_of(entry.number, entry.payload) for entry in await buffer.append(key, holder, holder) or []]
        before.sort(key=lambda one: one.number)
        after = forgetting(before, {memory_id})
        gone = [new for old, new in zip(before, after, strict=True) if new is not old]
        if gone:
            drop = [one.number for one in gone if one.message.role != "user"]
            keep = {one.number: payload_of(one) for one in gone if one.message.role == "user"}
            await buffer.settle(key, holder, drop=drop, keep=keep)
        count += len(gone)
    return count
