"""Which numbers does the review of a run go by?

config/review.toml, checked once.  Nothing here looks at a run.
"""

from pathlib import Path

from pydantic import Field

from memory_service.settings import Section, read_section


class ReviewLimits(Section):
    steps_max: int = Field(gt=0)
    text_chars_max: int = Field(gt=0)
    arguments_depth_max: int = Field(gt=0)
    compared_calls_max: int = Field(gt=0)
    lookup_terms_max: int = Field(gt=0)
    covered_chars_max: int = Field(gt=0)
    named_terms_max: int = Field(gt=0)


class BaselineNumbers(Section):
    runs_min: int = Field(gt=0)
    runs_max: int = Field(gt=0)
    steps: float = Field(ge=0)
    tool_calls: float = Field(ge=0)
    repeated_calls: float = Field(ge=0)
    argument_chars: float = Field(ge=0)
    untouched_goal_terms: float = Field(ge=0)
    closing_chars: float = Field(ge=0)
    duration_ms: float = Field(ge=0)


class ScoreNumbers(Section):
    slope: float = Field(gt=0)
    worth_reviewing_min: float = Field(gt=0, lt=1)
    ratio_max: float = Field(gt=0)
    near_repeat_overlap: float = Field(gt=0, le=1)
    half_count: float = Field(gt=0)
    steps: float
    argument_chars: float
    untouched_goal: float
    closing_chars: float
    duration: float
    repeats: float
    retries: float
    failures: float


class ToolWords(Section):
    talk: frozenset[str]


class ReviewRules(Section):
    limits: ReviewLimits
    baseline: BaselineNumbers
    score: ScoreNumbers
    tools: ToolWords


def load_review_rules(path: Path) -> ReviewRules:
    """Read config/review.toml.  Raises SetupRefused naming the file and the entry that is wrong."""
    return read_section(path, ReviewRules)
