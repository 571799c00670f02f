"""Which numbers bound the talk with a language model, and what do its tokens cost?

[language] of config/memory.toml and the place and secret from the environment.  Nothing here opens a connection.
"""

from dataclasses import dataclass, field

from pydantic import Field

from memory_service.settings import Section, Settings


class LanguageNumbers(Section):
    """[language] of memory.toml; the reasons stand there."""

    attempt_timeout_s: float = Field(gt=0)
    deadline_s: float = Field(gt=0)
    attempts_max: int = Field(ge=1)
    repairs_max: int = Field(ge=0, le=3)
    retry_base_s: float = Field(ge=0)
    retry_s_max: float = Field(ge=0)
    retry_after_s_max: float = Field(ge=0)
    concurrent_requests_max: int = Field(ge=1)
    waiting_calls_max: int = Field(ge=1)
    requests_per_minute: float = Field(ge=0)
    tokens_per_minute: float = Field(ge=0)
    rate_burst_s: float = Field(gt=0)
    bytes_per_token: float = Field(gt=0)
    breaker_failures_max: int = Field(ge=1)
    breaker_rest_s: float = Field(gt=0)
    answer_bytes_max: int = Field(ge=1)
    answer_tokens_max: int = Field(ge=1)
    quoted_answer_chars_max: int = Field(ge=0)
    temperature: float = Field(ge=0)
    price_in_per_million_tokens: float = Field(ge=0)
    price_out_per_million_tokens: float = Field(ge=0)


@dataclass(frozen=True, slots=True)
class LanguageConfig:
    """The endpoint: `base_url` up to and with /v1, the model's name there, and its key, which `repr` does not show."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)


def language_config(settings: Settings) -> LanguageConfig | None:
    """None when no endpoint is configured: Hindsight then works by its own rules.  Blank counts as not set."""
    base_url = (settings.llm_base_url or "").strip()
    if not base_url:
        return None
    return LanguageConfig(base_url, (settings.llm_model or "").strip(), (settings.llm_api_key or "").strip() or None)
