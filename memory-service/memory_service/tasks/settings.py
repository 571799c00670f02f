"""Which numbers apply to the task loop?  The table [tasks] of config/memory.toml, nothing else."""

from memory_service.settings import Section


class TaskNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    finished_ttl_seconds: int
    first_memories_max: int
    context_deadline_s: float
    advice_deadline_s: float
    advice_tokens_max: int
    hints_per_type_max: int
    hint_text_chars_max: int
    repeated_text_chars_max: int
    covered_error_share: float
    asking_words: tuple[str, ...]
    told_lessons_max: int
    similar_min: float
    shared_name_share: float
    lone_name_weight: float
    compared_chars_max: int
    past_memories_max: int
    past_calls_max: int
    experiences_asked: int
    experiences_max: int
    confidence_min: float
    partial_score_min: float
    advised_bytes_max: int
    passing_error_classes: tuple[str, ...]
    finish_wait_s: float
    episode_decisions_max: int
    episode_failures_max: int
    episode_text_chars_max: int
    episode_calls_max: int
    importance_smooth: float
    importance_telling: float
    used_terms_min: int
    contexts_marked_max: int
