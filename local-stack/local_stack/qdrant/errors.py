"""What does the REST process answer when it can't? Errors in Qdrant's own shape, so that its clients understand them."""

from __future__ import annotations


class ApiError(Exception):
    """An answer that is not a result. `status` is the HTTP status, the message goes out as `status.error`."""

    status = 500


class BadRequest(ApiError):
    """The request is malformed or the engine refuses it."""

    status = 400

    def __init__(self, reason: str) -> None:
        super().__init__(f"Wrong input: {reason}")


class NotFound(ApiError):
    """The collection, alias or point is not there."""

    status = 404

    def __init__(self, what: str) -> None:
        super().__init__(f"Not found: {what}")


class Conflict(ApiError):
    """The name is taken."""

    status = 409

    def __init__(self, reason: str) -> None:
        super().__init__(f"Wrong input: {reason}")


class TooLarge(ApiError):
    """The body is above the limit."""

    status = 413


class NotMapped(ApiError):
    """A real Qdrant may know this; this process does not, and says so instead of guessing."""

    status = 501

    def __init__(self, what: str) -> None:
        super().__init__(f"Not implemented by hindsight's local Qdrant: {what}")
