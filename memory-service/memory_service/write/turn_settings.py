"""Which numbers apply to buffered dialogue?  The table [turns] of config/memory.toml, nothing else."""

from pydantic import Field

from memory_service.settings import Section


class TurnNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    life_seconds: int = Field(ge=60)
    lease_seconds: int = Field(ge=1)
    buffer_messages_max: int = Field(ge=1)
    buffer_bytes_max: int = Field(ge=1)
    flush_bytes: int = Field(ge=1)
    request_messages_max: int = Field(ge=1)
    request_bytes_max: int = Field(ge=1)
