"""Which numbers bound what a language model is shown of a run, and what it may say?  [distill_model] of memory.toml, nothing else."""

from pydantic import Field

from memory_service.settings import Section


class DistillModelNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    deadline_s: float = Field(gt=0)
    run_tokens_max: int = Field(ge=100)
    step_tokens_max: int = Field(ge=20)
    text_tokens_max: int = Field(ge=20)
    steps_shown_max: int = Field(ge=1)
    neighbour_steps: int = Field(ge=0)
    lessons_max: int = Field(ge=1)
    conditions_max: int = Field(ge=1)
    texts_chars_max: int = Field(ge=40)
    query_deadline_s: float = Field(gt=0)
    query_chars_max: int = Field(ge=40)
