"""What can go wrong between a caller and the service?

    GatewayError
    ├── BadArguments        the caller's arguments cannot be sent; the message is advice for a language model
    └── ServiceFailure      the service was asked, or could not be
        ├── NotSent         no byte of the request left: nothing can have happened
        ├── Unanswered      sent, but no complete answer: nobody knows what happened
        └── Refused         the service answered with an error status

Must not format sentences about failures (advice.py does) and must not carry URLs, keys or contents.
"""

from __future__ import annotations

from dataclasses import dataclass


class GatewayError(Exception):
    """Root of everything that the gateway raises itself."""


class BadArguments(GatewayError):
    """str(self) is a sentence for the caller."""


class ServiceFailure(GatewayError):
    """The service did not do what was asked, or it is not known."""


class NotSent(ServiceFailure):
    """Connection refused, no route, or no free connection in time."""


class Unanswered(ServiceFailure):
    """`timed_out` tells a slow service from a broken connection."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("timed out" if timed_out else "connection broken")
        self.timed_out = timed_out


@dataclass(frozen=True)
class FieldProblem:
    """One entry of a problem document's `errors`."""

    field: str
    message: str


class Refused(ServiceFailure):
    """An error status with what its RFC 9457 document said; `retry_after` in whole seconds."""

    def __init__(
        self,
        status: int,
        *,
        code: str = "",
        detail: str = "",
        fields: tuple[FieldProblem, ...] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {code}".strip())
        self.status = status
        self.code = code
        self.detail = detail
        self.fields = fields
        self.retry_after = retry_after


class PartlySaved(ServiceFailure):
    """A note and a tool call were sent; the note was saved, the tool call failed with `cause`."""

    def __init__(self, cause: ServiceFailure) -> None:
        super().__init__(str(cause))
        self.cause = cause
