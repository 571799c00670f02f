"""The route that forgets a user."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from memory_service.access import require_admin, require_user
from memory_service.api.answers import reply
from memory_service.api.contract import ContractRoute
from memory_service.api.dependencies import Services, Writer, note
from memory_service.api.fields import Identifier

router = APIRouter(prefix="/v1/users", route_class=ContractRoute, tags=["users"])


@router.delete("/{user_id}")
async def erase(
    request: Request, user_id: Annotated[Identifier, Path()], services: Services, caller: Writer
) -> Response:
    """Erase everything of a user.  Admins may erase anyone; a user-bound writer its own user."""
    require_user(caller, user_id)
    if caller.user_id is None:
        require_admin(caller)
    note(request, user_id=user_id)
    return reply(await services.erasure.erase_user(caller, user_id))
