"""Which requests does API.md have, with which body fields? The stand-in refuses everything else."""

from __future__ import annotations

import re

ID = r"([^/]+)"

# Method and path → body fields of API.md (required ones with a trailing "!").
CONTRACT: dict[tuple[str, str], str] = {
    ("POST", "/v1/memories"): "user_id! content! kind summary event_type category tags entities tool_calls outcome "
    "importance occurred_at agent_id session_id task_id related_ids metadata expires_at infer",
    ("POST", "/v1/memories/search"): "user_id! query! limit top_k kinds tags tag_match filters agent_id session_id "
    "task_id since until include_cold include_superseded as_of include_shared mode rerank min_score explain",
    ("PATCH", f"/v1/memories/{ID}"): "content summary category event_type tags entities outcome importance confidence "
    "occurred_at expires_at related_ids metadata",
    ("GET", f"/v1/memories/{ID}"): "",
    ("DELETE", f"/v1/memories/{ID}"): "",
    ("GET", "/v1/memories"): "",
    ("GET", "/v1/keys/self"): "",
    ("GET", "/v1/stats"): "",
    ("POST", f"/v1/memories/{ID}/feedback"): "outcome! retrieval_id note",
    ("PUT", f"/v1/working-memory/{ID}"): "user_id! task_goal task_type constraints ttl_seconds",
    ("GET", f"/v1/working-memory/{ID}"): "",
    ("PATCH", f"/v1/working-memory/{ID}"): "user_id! task_goal task_type constraints confirmed_facts pending_items "
    "done_items failed_attempts variables remove",
    ("POST", f"/v1/working-memory/{ID}/steps"): "user_id! tool! arguments status! result error duration_ms reason",
    ("POST", "/v1/tasks"): "user_id! goal! task_type constraints task_id agent_id session_id state max_tokens resume",
    ("POST", f"/v1/tasks/{ID}/advice"): "user_id! tool! arguments state",
    ("POST", f"/v1/tasks/{ID}/finish"): "user_id! outcome! result feedback",
    (
        "POST",
        "/v1/experiences/query",
    ): "user_id! state conditions semantic_query task_type tags limit min_confidence explain",
    ("POST", "/v1/experiences/distill"): "user_id! trajectory! force",
    ("POST", f"/v1/experiences/{ID}/feedback"): "outcome! task_id",
}
KEYED_POSTS = re.compile(
    r"/v1/(memories|memories/[^/]+/feedback|working-memory/.*|tasks|tasks/.*/finish|experiences/.*)"
)
