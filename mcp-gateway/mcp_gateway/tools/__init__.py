"""Which tools are there? The one list, in the order that clients show."""

from __future__ import annotations

from mcp_gateway.tools import experiences, memories, tasks
from mcp_gateway.tools.tool import Tool

ALL_TOOLS: tuple[Tool, ...] = (
    memories.memory_search,
    memories.search_episodic_memory,
    memories.memory_write,
    memories.memory_update,
    memories.memory_delete,
    experiences.memory_query,
    experiences.memory_distill,
    memories.memory_feedback,
    tasks.task_start,
    tasks.task_note,
    tasks.task_advice,
    tasks.task_finish,
)
