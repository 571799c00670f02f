"""What is a tool? One declaration: its name, words, arguments, annotations and the function that maps it to REST.

Must not contain a tool itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_gateway.access import AccessDesk
from mcp_gateway.advice import Effect
from mcp_gateway.arguments import Argument
from mcp_gateway.client import Caller, Json, ServiceClient
from mcp_gateway.errors import BadArguments
from mcp_gateway.settings import GatewaySettings

Value = TypeVar("Value")

USER_ID = Argument(
    "user_id", "string", "Whose memories. Leave it out: the default is set by the gateway or bound to the API key."
)


@dataclass(frozen=True)
class Call:
    """One checked tool call with everything it needs to reach the service."""

    arguments: Mapping[str, Json]
    caller: Caller
    service: ServiceClient
    access: AccessDesk
    settings: GatewaySettings

    def get(self, name: str) -> Json:
        return self.arguments.get(name)

    def picked(self, *names: str, **renamed: str) -> dict[str, Json]:
        """Body fields for the given arguments that are present; `renamed` is field=argument."""
        fields = {name: name for name in names} | renamed
        return {key: self.arguments[name] for key, name in fields.items() if name in self.arguments}

    async def user_id(self) -> str:
        """The argument, else the gateway's default, else the user that the key is bound to."""
        return await find_user_id(self.get("user_id"), self.settings, self.access, self.caller)


@dataclass(frozen=True)
class Tool:
    """`renamed` maps service fields to argument names for advice; `missing` is the sentence for a 404, `rest` the one
    that says how to get what an answer was too long for."""

    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...]
    effect: Effect
    run: Callable[[Call], Awaitable[Json]]
    missing: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    rest: str = "Ask for less at once."
    renamed: Mapping[str, str] = field(default_factory=dict)


def meanwhile(work: Callable[[], Value]) -> Callable[[], Value]:
    """`work`, which the event loop does as soon as it waits for something else (the service), so that what comes next
    finds it done; at the latest when its value is asked for. `work` must not fail."""
    made: list[Value] = []

    def value() -> Value:
        if not made:
            made.append(work())
        return made[0]

    asyncio.get_running_loop().call_soon(value)
    return value


async def find_user_id(given: Json, settings: GatewaySettings, access: AccessDesk, caller: Caller) -> str:
    """Raises BadArguments when neither the call, the settings nor the key names a user."""
    if isinstance(given, str):
        return given
    if settings.user_id is not None:
        return settings.user_id
    bound = (await access.standing(caller)).user_id
    if bound is None:
        raise BadArguments(
            "Whose memories? Pass 'user_id', or have HINDSIGHT_USER_ID set for the gateway, or use an API key that is bound to a user."
        )
    return bound
