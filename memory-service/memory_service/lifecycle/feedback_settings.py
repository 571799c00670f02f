"""How far does feedback move a memory?  [feedback] of config/memory.toml."""

from memory_service.settings import Section


class FeedbackNumbers(Section):
    """Shares are of the way to the bound: of 1 - confidence upwards, of confidence downwards."""

    success_confidence_share: float
    failure_confidence_share: float
    outdated_confidence_share: float
    irrelevant_heat_loss: float
    outdated_heat_share: float
    retrieval_wait_s: float
