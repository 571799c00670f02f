"""Which numbers do insights go by?  [insights] of config/memory.toml, nothing else."""

from pydantic import Field

from memory_service.settings import Section


class InsightNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    days: float = Field(gt=0)
    episodes_max: int = Field(ge=1)
    episodes_min: int = Field(ge=2)
    sources_kept_min: int = Field(ge=2)
    calls_max: int = Field(ge=1)
    lookahead_calls_max: int = Field(ge=1)
    changed_arguments_max: int = Field(ge=1)
    value_chars_max: int = Field(ge=1)
    found_max: int = Field(ge=1)
    users_page: int = Field(ge=1)
    confidence: float = Field(ge=0, le=1)
    importance: float = Field(ge=0, le=1)
    fact_confidence: float = Field(ge=0, le=1)
    model_insights_max: int = Field(ge=0)
    model_deadline_s: float = Field(gt=0)
    text_chars_max: int = Field(ge=100)
