"""What can go wrong, and how does a caller learn of it?

    HindsightError                      status, code
    ├── BadRequest 400 malformed        the body is not JSON of UTF-8
    ├── Unauthorized 401 unauthorized
    ├── Forbidden 403 forbidden
    ├── NotFound 404 not_found
    ├── Conflict 409 conflict
    │   ├── StaleVersion 409 stale_version
    │   ├── RequestInProgress 409 request_in_progress   (Retry-After)
    │   ├── TaskExists 409 task_exists
    │   └── TaskFinished 409 task_finished   what comes now would be lost
    ├── Gone 410 gone
    ├── TooLarge 413 too_large
    ├── UnsupportedEncoding 415 unsupported_encoding   the body is packed, as Content-Encoding says
    ├── InvalidFields 422 invalid       every field named
    ├── IdempotencyMismatch 422 idempotency_mismatch
    ├── RateLimited 429 rate_limited    (Retry-After)
    ├── StoreUnavailable 503 store_unavailable   a store that this request needs is down
    ├── UserBeingErased 503 user_being_erased   writes of a user wait until his erasure is done   (Retry-After)
    ├── JobOverran 503 job_overran       a maintenance job took too long and was ended
    └── ModelUnavailable 503 model_unavailable
        ├── EmbedderUnavailable · RerankerUnavailable · LanguageModelUnavailable
    ├── TextRefused                 the embedding endpoint is up and refuses this text
        └── LanguageModelBadAnswer      the model answered, but not with what was asked
    SetupRefused                        the process must not start; the message says what to run

Errors are named after facts.  Texts never carry SQL, DSNs, URLs or contents.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field of the request and what is wrong with it.  `field` is a dotted path as the caller wrote it."""

    field: str
    message: str


class HindsightError(Exception):
    """Base of everything that is answered as application/problem+json."""

    status = 500
    code = "internal"
    title = "Something went wrong inside the service"

    def __init__(
        self, detail: str = "", *, errors: tuple[FieldError, ...] = (), retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.errors = errors
        self.retry_after_s = retry_after_s


class BadRequest(HindsightError):
    status, code, title = 400, "malformed", "The request could not be read"


class Unauthorized(HindsightError):
    status, code, title = 401, "unauthorized", "No valid API key was given"


class Forbidden(HindsightError):
    status, code, title = 403, "forbidden", "This API key may not do that"


class NotFound(HindsightError):
    status, code, title = 404, "not_found", "There is no such thing here"


class Conflict(HindsightError):
    status, code, title = 409, "conflict", "The request conflicts with the current state"


class StaleVersion(Conflict):
    code, title = "stale_version", "Someone changed it since the version you named"


class RequestInProgress(Conflict):
    code, title = "request_in_progress", "The first request with this Idempotency-Key is still running"


class TaskExists(Conflict):
    code, title = "task_exists", "A live task of that id exists already"


class TaskFinished(Conflict):
    code, title = "task_finished", "The task is finished already"


class Gone(HindsightError):
    status, code, title = 410, "gone", "It was erased and can't come back"


class TooLarge(HindsightError):
    """`errors` names the field that is, unless it is the request, or what it would make, as a whole."""

    status, code, title = 413, "too_large", "The request is too large"

    @classmethod
    def of(cls, field: str, message: str) -> "TooLarge":
        return cls(f"{field}: {message}", errors=(FieldError(field, message),))


class UnsupportedEncoding(HindsightError):
    status, code, title = 415, "unsupported_encoding", "A body in this Content-Encoding is not read"


class InvalidFields(HindsightError):
    """`errors` is never empty."""

    status, code, title = 422, "invalid", "Some fields are not valid"

    @classmethod
    def of(cls, field: str, message: str) -> "InvalidFields":
        return cls(f"{field}: {message}", errors=(FieldError(field, message),))


class IdempotencyMismatch(HindsightError):
    status, code, title = 422, "idempotency_mismatch", "This Idempotency-Key was used with another body"


class RateLimited(HindsightError):
    status, code, title = 429, "rate_limited", "Too many requests with this key"


class StoreUnavailable(HindsightError):
    """`store` is postgres, redis or qdrant."""

    status, code, title = 503, "store_unavailable", "A store that this request needs is down"

    def __init__(self, store: str, detail: str = "") -> None:
        super().__init__(detail or f"{store} is not reachable", retry_after_s=1.0)
        self.store = store


class UserBeingErased(HindsightError):
    """Nothing was written.  What began before the erasure ended may carry what is erased: it has to begin anew."""

    status, code, title = (
        503,
        "user_being_erased",
        "The user is being erased, or was while this request ran; send it again",
    )

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, retry_after_s=1.0)


class JobOverran(HindsightError):
    status, code, title = 503, "job_overran", "The job took too long and was ended; what it did so far stays done"


class ModelUnavailable(HindsightError):
    status, code, title = 503, "model_unavailable", "A model that this request needs is down"


class EmbedderUnavailable(ModelUnavailable):
    title = "The embedding model is not available"


class TextRefused(ModelUnavailable):
    """A fault of the text, not of the endpoint: trying other texts makes sense, trying this one again hardly."""

    code, title = "text_refused", "The embedding model refused this text"


class RerankerUnavailable(ModelUnavailable):
    title = "The reranker is not available"


class LanguageModelUnavailable(ModelUnavailable):
    title = "The language model is not available"


class LanguageModelBadAnswer(ModelUnavailable):
    title = "The language model's answer could not be used"


class SetupRefused(Exception):
    """The process must not start as configured.  The message tells a person what is wrong and the command that mends it."""
