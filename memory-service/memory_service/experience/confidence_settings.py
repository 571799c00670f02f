"""Which numbers move the confidence of an experience?  The table [experience_confidence] of config/memory.toml, nothing else."""

from memory_service.settings import Section


class ConfidenceSettings(Section):
    """Reasons stand beside the values in memory.toml."""

    success_start: float
    detour_start: float
    failure_start: float
    human_start: float
    insight_start: float
    success_share: float
    failure_share: float
    reinforced_share: float
    confidence_max: float
    confidence_min: float
    half_life_days: float
    faded_min: float
    ledger_entries_max: int
