"""Who asks, with which services?  What every route needs."""

from typing import Annotated

from fastapi import Depends, Request

from memory_service.access import require_writer
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller


def runtime_of(request: Request) -> Runtime:
    return request.app.state.runtime  # type: ignore[no-any-return]


async def services_of(request: Request) -> Runtime:
    """As a coroutine: FastAPI runs a plain function in a thread, which costs more than the look-up of a key."""
    return runtime_of(request)


async def reader_of(request: Request) -> Caller:
    """Any valid key, asked once a request.  The only place where a tenant comes from, and the user that a key is bound to."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is not None:
        return known
    caller = await runtime_of(request).access.caller(request.headers.get("authorization"))
    request.state.caller = caller
    request.scope.setdefault("facts", {})["key_id"] = caller.key_id
    return caller


async def writer_of(caller: Annotated[Caller, Depends(reader_of)]) -> Caller:
    require_writer(caller)
    return caller


Services = Annotated[Runtime, Depends(services_of)]
Reader = Annotated[Caller, Depends(reader_of)]
Writer = Annotated[Caller, Depends(writer_of)]


def note(request: Request, **facts: object) -> None:
    """Facts for the request's log line: ids, counts and times, never contents."""
    request.scope.setdefault("facts", {}).update(facts)
