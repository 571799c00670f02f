"""Memories, their index outbox, relations, versions, experiences, keys and logs.

Written as SQL because people read these tables with psql: what stands here is what they see.
"""

from alembic import op

revision = "0001"
down_revision = None

MEMORY_COLUMNS = """
    id                uuid        NOT NULL,
    tenant            text        NOT NULL,
    kind              text        NOT NULL CHECK (kind IN ('episodic', 'semantic')),
    user_id           text        NOT NULL,
    agent_id          text,
    session_id        text,
    task_id           text,
    event_type        text,
    category          text,
    content           text        NOT NULL,
    summary           text        NOT NULL,
    entities          jsonb       NOT NULL DEFAULT '[]',
    tool_calls        jsonb       NOT NULL DEFAULT '[]',
    tags              text[]      NOT NULL DEFAULT '{}',
    outcome           text        CHECK (outcome IN ('success', 'failure', 'detour')),
    importance        double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    confidence        double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    heat              double precision NOT NULL CHECK (heat >= 0),
    heat_at           timestamptz NOT NULL,
    state             text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'cold', 'superseded', 'compressed')),
    pinned            boolean     NOT NULL DEFAULT false,
    superseded_by     uuid,
    valid_from        timestamptz,
    valid_to          timestamptz,
    related_ids       uuid[]      NOT NULL DEFAULT '{}',
    source_memory_ids uuid[]      NOT NULL DEFAULT '{}',
    metadata          jsonb       NOT NULL DEFAULT '{}',
    version           integer     NOT NULL DEFAULT 1,
    conflict_id       uuid,
    occurred_at       timestamptz NOT NULL,
    expires_at        timestamptz,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    last_accessed_at  timestamptz,
    access_count      integer     NOT NULL DEFAULT 0,
    content_hash      bytea       NOT NULL,
    search_terms      tsvector    NOT NULL,
    term_count        integer     NOT NULL
"""

COLUMN_COMMENTS = {
    "id": "UUIDv7: sorts by creation time",
    "tenant": "who owns the row; comes from the API key, never from a request",
    "kind": "episodic: what happened; semantic: what is known",
    "user_id": "whom the memory is about; *shared is the tenant's common pool",
    "agent_id": "the agent that wrote it",
    "session_id": "the conversation it comes from",
    "task_id": "the task it comes from",
    "event_type": "what kind of event or statement it is, such as tool_error or preference",
    "category": "what it is about",
    "content": "the whole text",
    "summary": "one sentence of the content",
    "entities": '[{name, type}] named in the content; GIN index, ask with entities @> \'[{"name": "..."}]\'',
    "tool_calls": "[{tool, arguments, status, error, duration_ms}]",
    "tags": "labels given by the caller",
    "outcome": "how what happened ended: success, failure or detour",
    "importance": "0..1",
    "confidence": "0..1, how sure we are that it is true",
    "heat": "how alive it was at heat_at; fades by x 0.9 a week, computed when read",
    "heat_at": "when heat was last written",
    "state": "active, cold (out of normal search), superseded (no longer believed) or compressed (merged into another)",
    "pinned": "a pinned memory does not cool",
    "superseded_by": "the memory that replaced this one",
    "valid_from": "since when it is believed",
    "valid_to": "until when it was believed",
    "related_ids": "ids the caller named as related; the graph itself is memory_relations",
    "source_memory_ids": "the memories this one was made from",
    "metadata": "any JSON object of the caller's",
    "version": "1 at first, +1 with each change; older ones are in memory_version",
    "conflict_id": "the open conflict it is part of",
    "occurred_at": "when what it tells happened",
    "expires_at": "from then on it is gone from every answer",
    "created_at": "when it was written",
    "updated_at": "when it was last changed",
    "last_accessed_at": "when a search last returned it",
    "access_count": "how often a search returned it",
    "content_hash": "sha256 of the normalised content, for duplicates",
    "search_terms": "keyword terms made by the service; each begins with a short hash of tenant and user",
    "term_count": "number of terms before they were made distinct, for BM25's length",
}

INDEXES = """
CREATE UNIQUE INDEX {t}_id ON {t} (id);
CREATE INDEX {t}_time ON {t} (tenant, user_id, occurred_at DESC, id DESC);
CREATE INDEX {t}_created ON {t} (tenant, user_id, created_at DESC, id DESC);
CREATE INDEX {t}_same_text ON {t} (tenant, user_id, content_hash);
CREATE INDEX {t}_important ON {t} (tenant, user_id, importance DESC, occurred_at DESC) WHERE state = 'active' AND importance >= 0.7;
CREATE INDEX {t}_task ON {t} (tenant, user_id, task_id) WHERE task_id IS NOT NULL;
CREATE INDEX {t}_session ON {t} (tenant, user_id, session_id, occurred_at) WHERE session_id IS NOT NULL;
CREATE INDEX {t}_agent ON {t} (tenant, user_id, agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX {t}_category ON {t} (tenant, user_id, category) WHERE category IS NOT NULL;
CREATE INDEX {t}_event_type ON {t} (tenant, user_id, event_type) WHERE event_type IS NOT NULL;
CREATE INDEX {t}_outcome ON {t} (tenant, user_id, outcome) WHERE outcome IS NOT NULL;
CREATE INDEX {t}_expires ON {t} (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX {t}_entities ON {t} USING gin (entities jsonb_path_ops);
CREATE INDEX {t}_tool_calls ON {t} USING gin (tool_calls jsonb_path_ops);
CREATE INDEX {t}_metadata ON {t} USING gin (metadata jsonb_path_ops);
CREATE INDEX {t}_related ON {t} USING gin (related_ids) WHERE related_ids <> '{{}}';
CREATE INDEX {t}_sources ON {t} USING gin (source_memory_ids) WHERE source_memory_ids <> '{{}}';
CREATE INDEX {t}_superseded_by ON {t} (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX {t}_tags ON {t} USING gin (tags);
CREATE INDEX {t}_terms ON {t} USING gin (search_terms);
"""

OTHER_TABLES = """
CREATE SEQUENCE index_outbox_seq;
CREATE TABLE index_outbox (
    memory_id    uuid        PRIMARY KEY,
    tenant       text        NOT NULL,
    user_id      text,
    seq          bigint      NOT NULL DEFAULT nextval('index_outbox_seq'),
    state        text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dead')),
    attempts     integer     NOT NULL DEFAULT 0,
    enqueued_at  timestamptz NOT NULL DEFAULT now(),
    available_at timestamptz NOT NULL DEFAULT now(),
    leased_until timestamptz,
    error        text
);
CREATE INDEX index_outbox_due ON index_outbox (available_at) WHERE state = 'pending';
CREATE INDEX index_outbox_dead ON index_outbox (tenant) WHERE state = 'dead';
COMMENT ON TABLE index_outbox IS 'Memories whose vectors must be made to match: a row says only that the memory changed';
COMMENT ON COLUMN index_outbox.seq IS 'changes with every change of the memory; the relay removes only the row it applied';
COMMENT ON COLUMN index_outbox.user_id IS 'set when the memory was erased: whose copies in working memory must go too';
COMMENT ON COLUMN index_outbox.state IS 'dead: given up after repeated failures, see error; hindsight reindex tries again';

CREATE TABLE memory_relations (
    source_id     uuid NOT NULL,
    target_id     uuid NOT NULL,
    relation_type text NOT NULL,
    weight        double precision NOT NULL DEFAULT 1.0,
    tenant        text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source_id, target_id, relation_type)
);
CREATE INDEX memory_relations_target ON memory_relations (target_id);
COMMENT ON TABLE memory_relations IS 'The graph between memories';
COMMENT ON COLUMN memory_relations.source_id IS 'the memory that the relation starts from';
COMMENT ON COLUMN memory_relations.target_id IS 'the memory that it leads to';
COMMENT ON COLUMN memory_relations.relation_type IS 'what the one is to the other, such as caused_by';
COMMENT ON COLUMN memory_relations.weight IS 'how strong it is; 1 unless said otherwise';
COMMENT ON COLUMN memory_relations.tenant IS 'who owns both';

CREATE TABLE memory_version (
    memory_id  uuid        NOT NULL,
    version    integer     NOT NULL,
    tenant     text        NOT NULL,
    user_id    text        NOT NULL,
    at         timestamptz NOT NULL,
    actor      text        NOT NULL,
    cause      text        NOT NULL,
    changes    jsonb       NOT NULL,
    snapshot   jsonb       NOT NULL,
    PRIMARY KEY (memory_id, version)
);
CREATE INDEX memory_version_user ON memory_version (tenant, user_id);
COMMENT ON TABLE memory_version IS 'What a memory was: one row per replaced version, written when it is replaced';
COMMENT ON COLUMN memory_version.snapshot IS 'the memory as it was at this version';
COMMENT ON COLUMN memory_version.changes IS '{field: {from, to}} of the change that replaced this version';

CREATE TABLE memory_conflict (
    id          uuid        PRIMARY KEY,
    tenant      text        NOT NULL,
    user_id     text        NOT NULL,
    old_id      uuid        NOT NULL,
    new_id      uuid        NOT NULL,
    reason      text        NOT NULL,
    state       text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved')),
    resolution  text,
    created_at  timestamptz NOT NULL,
    resolved_at timestamptz,
    resolved_by text
);
CREATE INDEX memory_conflict_queue ON memory_conflict (tenant, user_id, created_at DESC, id DESC);
COMMENT ON TABLE memory_conflict IS 'Contradictory facts and preferences that wait for a person';

CREATE TABLE experience (
    id                uuid        PRIMARY KEY,
    tenant            text        NOT NULL,
    user_id           text        NOT NULL,
    agent_id          text,
    task_type         text,
    conditions        jsonb       NOT NULL,
    condition_hash    bytea       NOT NULL,
    action            text        NOT NULL,
    avoid             text,
    rationale         text,
    origin            text        NOT NULL CHECK (origin IN ('success', 'failure', 'detour', 'feedback', 'insight')),
    confidence        double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    confidence_ledger jsonb       NOT NULL DEFAULT '[]',
    tags              text[]      NOT NULL DEFAULT '{}',
    source_memory_ids uuid[]      NOT NULL DEFAULT '{}',
    status            text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'superseded', 'retired')),
    superseded_by     uuid,
    use_count         integer     NOT NULL DEFAULT 0,
    success_count     integer     NOT NULL DEFAULT 0,
    failure_count     integer     NOT NULL DEFAULT 0,
    version           integer     NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
);
CREATE UNIQUE INDEX experience_one_active ON experience (tenant, user_id, condition_hash) WHERE status = 'active';
CREATE INDEX experience_user ON experience (tenant, user_id, created_at DESC, id DESC);
CREATE INDEX experience_conditions ON experience USING gin (conditions jsonb_path_ops);
CREATE INDEX experience_tags ON experience USING gin (tags);
COMMENT ON TABLE experience IS 'Conditional lessons: when all conditions hold, take the action';

CREATE TABLE retrieval_log (
    id              uuid        PRIMARY KEY,
    tenant          text        NOT NULL,
    user_id         text        NOT NULL,
    at              timestamptz NOT NULL,
    source          text        NOT NULL,
    query           text        NOT NULL,
    filters         jsonb       NOT NULL DEFAULT '{}',
    hits            jsonb       NOT NULL DEFAULT '[]',
    degraded        text[]      NOT NULL DEFAULT '{}',
    took_ms         double precision NOT NULL,
    injected_tokens integer,
    used_ids        uuid[]      NOT NULL DEFAULT '{}'
);
CREATE INDEX retrieval_log_user ON retrieval_log (tenant, user_id, at DESC, id DESC);
COMMENT ON TABLE retrieval_log IS 'Searches: what was asked, what came back and whether it was used';
COMMENT ON COLUMN retrieval_log.hits IS '[{id, score, lanes}] in the order returned';

CREATE TABLE api_key (
    id                  uuid        PRIMARY KEY,
    tenant              text        NOT NULL,
    role                text        NOT NULL CHECK (role IN ('reader', 'writer', 'admin')),
    user_id             text,
    name                text        NOT NULL DEFAULT '',
    key_hash            bytea       NOT NULL UNIQUE,
    hint                text        NOT NULL,
    requests_per_minute integer,
    created_at          timestamptz NOT NULL,
    revoked_at          timestamptz
);
COMMENT ON TABLE api_key IS 'API keys; only hashes are kept';
COMMENT ON COLUMN api_key.hint IS 'the first characters of the key, to tell keys apart';

CREATE TABLE idempotency_key (
    tenant       text        NOT NULL,
    caller       text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    claim        uuid        NOT NULL,
    leased_until timestamptz NOT NULL,
    status       integer,
    response     bytea,
    memory_ids   uuid[]      NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, caller, key)
);
CREATE INDEX idempotency_key_age ON idempotency_key (created_at);
CREATE INDEX idempotency_key_memories ON idempotency_key USING gin (memory_ids);
COMMENT ON TABLE idempotency_key IS 'Answers by Idempotency-Key, written in the same transaction as what they answer';

CREATE TABLE job_run (
    id          uuid        PRIMARY KEY,
    job         text        NOT NULL,
    dry_run     boolean     NOT NULL DEFAULT false,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    outcome     text        CHECK (outcome IN ('success', 'failure')),
    result      jsonb       NOT NULL DEFAULT '{}',
    error       text
);
CREATE INDEX job_run_recent ON job_run (job, started_at DESC);
COMMENT ON TABLE job_run IS 'Runs of the maintenance jobs';

CREATE TABLE erased (
    tenant    text        NOT NULL,
    id        uuid        NOT NULL,
    erased_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);
COMMENT ON TABLE erased IS 'Ids that were erased and may never come back; no content is kept';
"""

# Times in JSON are strings; this reads one as an instant, or NULL when it is not a real date.
INSTANT = r"""
CREATE FUNCTION hindsight_instant(value text) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value !~ '^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$' THEN RETURN NULL; END IF;
    RETURN value::timestamptz;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
COMMENT ON FUNCTION hindsight_instant IS 'an RFC 3339 string as an instant; NULL for anything else';
"""


def upgrade() -> None:
    op.execute(f"CREATE TABLE memory ({MEMORY_COLUMNS}, PRIMARY KEY (id, kind)) PARTITION BY LIST (kind)")
    op.execute(
        "COMMENT ON TABLE memory IS 'Both kinds of long-term memory; its partitions are episodic_memory and semantic_memory'"
    )
    comments = {
        "episodic_memory": "What happened: events, tool calls, finished tasks",
        "semantic_memory": "What is known: preferences, rules, facts",
    }
    for table, comment in comments.items():
        kind = table.removesuffix("_memory")
        op.execute(f"CREATE TABLE {table} PARTITION OF memory FOR VALUES IN ('{kind}')")
        op.execute(f"ALTER TABLE {table} ALTER COLUMN kind SET DEFAULT '{kind}'")
        op.execute(f"COMMENT ON TABLE {table} IS '{comment}'")
        for statement in filter(str.strip, INDEXES.format(t=table).split(";")):
            op.execute(statement)
    for table in ("memory", *comments):
        for column, text in COLUMN_COMMENTS.items():
            op.execute(
                "COMMENT ON COLUMN {}.{} IS '{}'".format(table, column, text.replace("'", "''").replace(":", r"\:"))
            )
    for statement in filter(str.strip, OTHER_TABLES.split(";\n")):
        op.execute(statement.replace(":", r"\:") if "COMMENT" in statement else statement)
    op.execute(INSTANT.replace(":", r"\:"))


def downgrade() -> None:
    op.execute("DROP FUNCTION hindsight_instant(text)")
    for table in (
        "erased",
        "job_run",
        "idempotency_key",
        "api_key",
        "retrieval_log",
        "experience",
        "memory_conflict",
        "memory_version",
        "memory_relations",
        "index_outbox",
        "memory",
    ):
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP SEQUENCE index_outbox_seq")
