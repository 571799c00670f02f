"""Which numbers bound moving memories?  The table [moving] of config/memory.toml, nothing else."""

from memory_service.settings import Section


class MovingNumbers(Section):
    """Reasons stand beside the values in memory.toml."""

    export_page_rows: int
    export_queue_pages: int
    export_stall_s: float
    export_s_max: float
    exports_at_once_max: int
    import_slice_lines: int
    import_lines_max: int
    source_ids_max: int
    client_chunk_bytes: int
    client_chunk_lines: int
    client_attempts_max: int
    client_backoff_s: float
    client_backoff_s_max: float
    client_timeout_s: float
