"""What can an operator watch?  The Prometheus metrics of memory-service, in one list.

Label values come from code (route templates, lane and store names), never from what a caller sent.
"""

from prometheus_client import Counter, Gauge, Histogram

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

REQUESTS = Histogram(
    "hindsight_request_seconds", "Time to answer, by route", ["method", "route", "status"], buckets=LATENCY_BUCKETS_S
)
LANES = Histogram("hindsight_lane_seconds", "Time of one search lane", ["lane"], buckets=LATENCY_BUCKETS_S)
LANES_DEGRADED = Counter("hindsight_lane_degraded_total", "Searches in which a lane failed or was late", ["lane"])
OUTBOX_DEPTH = Gauge("hindsight_outbox_rows", "Memories whose vectors do not match yet", ["state"])
OUTBOX_AGE = Gauge("hindsight_outbox_oldest_seconds", "Age of the oldest pending outbox row")
REEMBED_STATE = Gauge(
    "hindsight_reembed_state", "1 for the state that the last change of the embedding model is in", ["state"]
)
REEMBED_RUNNING = Gauge("hindsight_reembed_running", "1 while a hindsight reembed is at work")
REEMBED_ROWS = Gauge(
    "hindsight_reembed_rows", "Memories and lessons that have vectors of the new model (done), of all (total)", ["what"]
)
RELAY_APPLIED = Counter("hindsight_relay_applied_total", "Outbox rows applied to Qdrant")
RELAY_FAILED = Counter("hindsight_relay_failed_total", "Outbox rows that failed by themselves", ["outcome"])
EMBED_BATCH = Histogram(
    "hindsight_embed_batch_texts", "Texts in one embedding batch", ["role"], buckets=(1, 2, 4, 8, 16, 32, 64, 128)
)
EMBED_CACHE = Counter("hindsight_embed_cache_total", "Look-ups in the embedding cache", ["role", "result"])
STORE_ERRORS = Counter("hindsight_store_errors_total", "Calls to a store that failed", ["store"])
RETRIEVALS_DROPPED = Gauge("hindsight_retrieval_log_dropped", "Log entries lost because the queue was full")
LANGUAGE_SECONDS_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
LANGUAGE_CALLS = Counter("hindsight_language_calls_total", "Questions to the language model", ["purpose", "outcome"])
LANGUAGE_SECONDS = Histogram(
    "hindsight_language_seconds",
    "Time of one question, retries included",
    ["purpose"],
    buckets=LANGUAGE_SECONDS_BUCKETS,
)
LANGUAGE_TOKENS = Counter(
    "hindsight_language_tokens_total", "Tokens as the endpoint counts them", ["purpose", "direction"]
)
LANGUAGE_COST = Counter(
    "hindsight_language_cost_total", "Tokens × the prices in [language], in their currency", ["purpose"]
)
JOB_RUNS = Counter(
    "hindsight_job_runs_total", "Runs of maintenance jobs that ended, dry runs left out", ["job", "outcome"]
)
JOB_SECONDS = Histogram(
    "hindsight_job_seconds", "Time of one run", ["job"], buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600)
)
JOB_DONE = Counter("hindsight_job_changes_total", "What maintenance jobs changed", ["job"])
JOB_LAST_SUCCESS = Gauge(
    "hindsight_job_last_success_timestamp_seconds", "When a scheduled run last ended well", ["job"]
)
READINGS = Counter("hindsight_readings_total", "Texts read for their summary and labels, by what read them", ["by"])
DISTILLATIONS = Counter(
    "hindsight_distillations_total", "Runs that a language model was asked about, by whose lessons hold", ["by"]
)
