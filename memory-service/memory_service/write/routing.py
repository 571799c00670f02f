"""Which memory does a text belong to: what happened (episodic) or what holds (semantic)?

Decided from the summary alone; the caller's explicit kind always wins.  It must not look at stored memories.
"""

from typing import Literal

from memory_service.write.summarise import Summary

Kind = Literal["auto", "episodic", "semantic"]
StoredKind = Literal["episodic", "semantic"]

CATEGORY_WHEN_UNKNOWN = "fact"  # semantic_memory.category of a text that its caller, not its wording, made knowledge


def route(kind: Kind, summary: Summary, *, has_outcome: bool = False, has_tool_calls: bool = False) -> StoredKind:
    """Preferences, rules and standing facts have a category → semantic; anything else happened → episodic.

    An outcome or tool calls tell of a run, so such a memory is episodic even when it also states a fact.
    """
    if kind != "auto":
        return kind
    if has_outcome or has_tool_calls:
        return "episodic"
    return "semantic" if summary.category is not None else "episodic"


def semantic_category(summary: Summary) -> str:
    """The category to store when the memory goes to semantic memory."""
    return summary.category or CATEGORY_WHEN_UNKNOWN
