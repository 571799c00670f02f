"""How much does it matter to remember this?

A base per event type, lifted by words of urgency, by what is vital to a person and by concrete names, lowered by small
talk.  It must not look at who wrote it or when; heat does that later.
"""

from memory_service.write.rules import EventTypeRule, ImportanceRule


def importance(stated: str, event_type: EventTypeRule, entity_count: int, rule: ImportanceRule) -> float:
    """0..1, rounded to 2 places.  `stated` is the analysed text without quotations."""
    value = event_type.importance + min(entity_count * rule.entity_boost, rule.entity_boost_max)
    if any(pattern.search(stated) for pattern in rule.urgent):
        value += rule.urgent_boost
    if event_type.category is not None and any(pattern.search(stated) for pattern in rule.vital):
        value += rule.vital_boost
    if any(pattern.search(stated) for pattern in rule.small_talk):
        value -= rule.small_talk_penalty
    return round(min(1.0, max(0.0, value)), 2)
