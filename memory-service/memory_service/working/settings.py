"""Which numbers apply to working memory?  The table [working] of config/memory.toml, nothing else."""

from memory_service.settings import Section


class Working(Section):
    """Reasons stand beside the values in memory.toml."""

    ttl_seconds_default: int
    ttl_seconds_min: int
    ttl_seconds_max: int
    constraints_max: int
    confirmed_facts_max: int
    pending_items_max: int
    variables_max: int
    done_items_max: int
    failed_attempts_max: int
    tool_call_history_max: int
    recent_steps_max: int
    state_bytes_max: int
    action_chars_max: int
    priority_default: int
    write_attempts_max: int
    write_lock_ms: int
    write_backoff_ms: float
    write_backoff_ms_max: float
    write_wait_s: float
    redis_connections_max: int
    context_tokens_default: int
    context_tokens_max: int
    context_steps: int
    context_text_chars_max: int
    context_mandatory_chars_per_token: int
    context_cut_chars_min: int
    context_facts_share: float
    context_failures_share: float
    context_todo_share: float
    context_misses_max: int
