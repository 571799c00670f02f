"""Which tools are there, and which are listed? The one table; a tool is listed when the service has its routes."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_gateway.tools import experiences, memories, tasks
from mcp_gateway.tools.tool import Tool


@dataclass(frozen=True)
class Entry:
    tool: Tool
    available: bool


TABLE = (
    Entry(memories.memory_search, available=True),
    Entry(memories.search_episodic_memory, available=True),
    Entry(memories.memory_write, available=True),
    Entry(memories.memory_update, available=True),
    Entry(memories.memory_delete, available=True),
    Entry(tasks.task_note, available=True),
    Entry(experiences.memory_query, available=True),
    Entry(experiences.memory_distill, available=True),
    Entry(memories.memory_feedback, available=False),
    Entry(tasks.task_start, available=False),
    Entry(tasks.task_advice, available=False),
    Entry(tasks.task_finish, available=False),
)

ALL_TOOLS: tuple[Tool, ...] = tuple(entry.tool for entry in TABLE)
LISTED_TOOLS: tuple[Tool, ...] = tuple(entry.tool for entry in TABLE if entry.available)
