"""Which numbers bound the experience service?  The table [experience] of config/memory.toml, nothing else."""

from memory_service.settings import Section


class ExperienceNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    text_chars_max: int
    query_items_default: int
    same_conditions_max: int
    tags_max: int
    source_ids_max: int
    patterns_per_user_max: int
    cached_users_max: int
    cached_entries_max: int
    inline_entries_max: int
    load_wait_s: float
    load_slice_rows: int
    load_inline_rows: int
    load_freeze_rows: int
    gone_rows_max: int
    unloaded_fields_max: int
    unloaded_fields_at_once: int
    unloaded_lessons_max: int
    unloaded_rows_max: int
    unloaded_deadline_s: float
    derive_query: bool
    derive_query_with_model: bool
    derived_relevance_min: float
    partial_weight: float
    keyword_hits: int
    keyword_per_term: int
    keyword_terms_max: int
    vector_hits: int
