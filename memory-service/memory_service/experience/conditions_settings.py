"""Which numbers bound conditions and what they read?  The table [experience_conditions] of config/memory.toml, nothing else."""

from memory_service.settings import Section


class ConditionLimits(Section):
    """Reasons stand beside the values in memory.toml."""

    triples_max: int
    field_chars_max: int
    field_parts_max: int
    values_max: int
    value_bytes_max: int
    value_depth_max: int
    pattern_chars_max: int
    pattern_program_max: int
    pattern_memory_bytes_max: int
    patterns_cached_max: int
    pattern_text_chars_max: int
    state_text_chars_max: int
    state_nodes_max: int
    state_depth_max: int
