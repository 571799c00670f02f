"""What running tasks and ageing memories need: tasks that outlive their working memory, feedback, jobs.

Each block belongs to one feature and stands alone.
"""

from alembic import op

revision = "0003"
down_revision = "0002"

TASKS = """
CREATE TABLE task_run (
    tenant      text        NOT NULL,
    user_id     text        NOT NULL,
    task_id     text        NOT NULL,
    run_id      uuid        NOT NULL,
    agent_id    text,
    session_id  text,
    goal        text        NOT NULL,
    task_type   text,
    started_at  timestamptz NOT NULL,
    outcome     text        CHECK (outcome IN ('success', 'failure', 'aborted')),
    closing     jsonb,
    episode_id  uuid,
    judged_ids  uuid[]      NOT NULL DEFAULT '{}',
    finished_at timestamptz,
    answer      json,
    PRIMARY KEY (tenant, user_id, task_id)
);
CREATE INDEX task_run_started ON task_run (tenant, user_id, started_at DESC);
CREATE INDEX task_run_episode ON task_run (episode_id) WHERE episode_id IS NOT NULL;
CREATE INDEX episodic_memory_tool_use ON episodic_memory (tenant, user_id, occurred_at DESC) WHERE tool_calls <> '[]';
COMMENT ON TABLE task_run IS 'Tasks of the task loop: what is left of them when their working memory has expired';
COMMENT ON COLUMN task_run.tenant IS 'who owns the row; comes from the API key, never from a request';
COMMENT ON COLUMN task_run.run_id IS 'tells this run from an earlier one with the same task_id; the working memory carries it too';
COMMENT ON COLUMN task_run.outcome IS 'what the first finish said; a later one that says something else is refused';
COMMENT ON COLUMN task_run.closing IS 'the run as it was when finish began, so that a finish that was cut off can be completed; NULL before and after';
COMMENT ON COLUMN task_run.finished_at IS 'when finish was acknowledged; NULL while the task runs';
COMMENT ON COLUMN task_run.episode_id IS 'the episodic memory that finish wrote';
COMMENT ON COLUMN task_run.judged_ids IS 'experiences whose confidence this finish has moved already';
COMMENT ON COLUMN task_run.answer IS 'what finish answered, so that a repeated finish answers the same; json, which keeps the order of fields';
"""

AGEING = """
ALTER TABLE memory ADD COLUMN written_by text;
COMMENT ON COLUMN memory.written_by IS 'who wrote the first version: key and its id, or local; NULL for rows older than this column';
COMMENT ON COLUMN episodic_memory.written_by IS 'who wrote the first version: key and its id, or local; NULL for rows older than this column';
COMMENT ON COLUMN semantic_memory.written_by IS 'who wrote the first version: key and its id, or local; NULL for rows older than this column';

ALTER TABLE erased ADD COLUMN owner bytea;
COMMENT ON COLUMN erased.owner IS 'sha256 over id, tenant and user: whoever names the user can check that it was his, nobody can read whose it was';

CREATE TABLE memory_feedback (
    id           uuid        PRIMARY KEY,
    tenant       text        NOT NULL,
    user_id      text        NOT NULL,
    memory_id    uuid        NOT NULL,
    at           timestamptz NOT NULL,
    actor        text        NOT NULL,
    outcome      text        NOT NULL CHECK (outcome IN ('success', 'failure', 'irrelevant', 'outdated')),
    note         text,
    retrieval_id uuid,
    occasion     text
);
CREATE INDEX memory_feedback_memory ON memory_feedback (memory_id, at DESC);
CREATE INDEX memory_feedback_user ON memory_feedback (tenant, user_id, at DESC);
CREATE UNIQUE INDEX memory_feedback_once ON memory_feedback (tenant, user_id, memory_id, occasion) WHERE occasion IS NOT NULL;
COMMENT ON TABLE memory_feedback IS 'How memories served: what callers said, and what finished tasks confirmed';
COMMENT ON COLUMN memory_feedback.user_id IS 'on whose behalf; for a memory of the common pool not the one it belongs to';
COMMENT ON COLUMN memory_feedback.memory_id IS 'the memory that was used or not; the row goes with it';
COMMENT ON COLUMN memory_feedback.actor IS 'key and its id, local, or task for a use that a finished task confirmed';
COMMENT ON COLUMN memory_feedback.outcome IS 'success: used, and it helped; failure: used, and it misled; irrelevant: not used; outdated: no longer true';
COMMENT ON COLUMN memory_feedback.note IS 'why, in the words of the caller';
COMMENT ON COLUMN memory_feedback.retrieval_id IS 'the search that brought it';
COMMENT ON COLUMN memory_feedback.occasion IS 'the task or retrieval whose use is counted once; NULL for what a caller said';
"""

TURNS = """
CREATE TABLE turn_written (
    tenant     text        NOT NULL,
    user_id    text        NOT NULL,
    message_id uuid        NOT NULL,
    cuts       jsonb,
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, user_id, message_id)
);
COMMENT ON TABLE turn_written IS 'Messages of session buffers that became memories, so that a crash never writes one twice or brings an erased one back';
COMMENT ON COLUMN turn_written.tenant IS 'who owns the row; comes from the API key, never from a request';
COMMENT ON COLUMN turn_written.user_id IS 'whose dialogue it is; the row goes with the user';
COMMENT ON COLUMN turn_written.message_id IS 'id of the message in the buffer';
COMMENT ON COLUMN turn_written.cuts IS 'start and end of the written parts in characters; NULL when all of it was';
COMMENT ON COLUMN turn_written.written_at IS 'rows older than a buffer can live are removed by later writes';
"""

CONTEXTS = """
ALTER TABLE retrieval_log ADD COLUMN task_id text;
CREATE INDEX retrieval_log_task ON retrieval_log (tenant, user_id, task_id, at DESC) WHERE task_id IS NOT NULL;
COMMENT ON COLUMN retrieval_log.task_id IS 'the task that a context was made for; NULL for all other retrievals';
COMMENT ON COLUMN retrieval_log.hits IS '[{id, score, lanes}] of a search, [{id, score, grade, what}] of a context, in the order returned';
COMMENT ON COLUMN retrieval_log.injected_tokens IS 'tokens of the text that a context answered; NULL for searches';
"""

LESSONS = """
ALTER INDEX experience_conditions SET (fastupdate = off);
SELECT gin_clean_pending_list('experience_conditions');
COMMENT ON INDEX experience_conditions IS 'Without a pending list: each look-up reads all of that, up to 4 MB, and a query makes dozens (365 ms instead of 35)';
CREATE TABLE experience_gone (
    tenant        text   NOT NULL,
    user_id       text   NOT NULL,
    changed_seq   bigint NOT NULL,
    experience_id uuid   NOT NULL,
    PRIMARY KEY (tenant, user_id, changed_seq, experience_id)
);
COMMENT ON TABLE experience_gone IS 'The newest single erasures of a user, so that indexes in memory drop these and need not be built anew';
COMMENT ON COLUMN experience_gone.tenant IS 'who owned the row; comes from the API key, never from a request';
COMMENT ON COLUMN experience_gone.user_id IS 'whose lesson it was; the row goes with the user';
COMMENT ON COLUMN experience_gone.changed_seq IS 'experience_change.counter of the erasure';
COMMENT ON COLUMN experience_gone.experience_id IS 'id of the erased experience, of which nothing else is left';
CREATE TABLE experience_feedback (
    tenant        text        NOT NULL,
    user_id       text        NOT NULL,
    task_id       text        NOT NULL,
    experience_id uuid        NOT NULL,
    outcome       text        NOT NULL CHECK (outcome IN ('success', 'failure')),
    at            timestamptz NOT NULL,
    PRIMARY KEY (tenant, user_id, task_id, experience_id)
);
CREATE INDEX experience_feedback_experience ON experience_feedback (experience_id);
COMMENT ON TABLE experience_feedback IS 'Which tasks have spoken about which experience: each task counts once';
COMMENT ON COLUMN experience_feedback.tenant IS 'who owns the row; comes from the API key, never from a request';
COMMENT ON COLUMN experience_feedback.user_id IS 'whose task it was; for an experience of the common pool not the one it belongs to';
COMMENT ON COLUMN experience_feedback.task_id IS 'the task in which the experience was used';
COMMENT ON COLUMN experience_feedback.experience_id IS 'the experience; the row goes with it';
COMMENT ON COLUMN experience_feedback.outcome IS 'how that task went';
COMMENT ON COLUMN experience_feedback.at IS 'when it was counted';
"""

JOBS = """
ALTER TABLE job_run
    ADD COLUMN tenant  text,
    ADD COLUMN part_of uuid,
    ADD COLUMN started_by text NOT NULL DEFAULT 'schedule' CHECK (started_by IN ('schedule', 'request', 'command')),
    ADD COLUMN due_at  timestamptz,
    ADD COLUMN done    bigint NOT NULL DEFAULT 0;
CREATE INDEX job_run_whole ON job_run (job, started_at DESC) WHERE tenant IS NULL;
CREATE INDEX job_run_tenant ON job_run (tenant, started_at DESC, id DESC) WHERE tenant IS NOT NULL;
CREATE INDEX job_run_tenant_job ON job_run (tenant, job, started_at DESC) WHERE tenant IS NOT NULL;
COMMENT ON COLUMN job_run.tenant IS 'whose data this run was about; NULL for a scheduled run as a whole, which goes through all tenants';
COMMENT ON COLUMN job_run.part_of IS 'the scheduled run that this row is one tenant of';
COMMENT ON COLUMN job_run.started_by IS 'schedule, request (POST /v1/maintenance) or command (hindsight job)';
COMMENT ON COLUMN job_run.due_at IS 'the scheduled time that a scheduled run stands for; the newest successful one tells whether a run was missed';
COMMENT ON COLUMN job_run.done IS 'how many things it changed, or would have in a dry run';
COMMENT ON COLUMN job_run.result IS '{name: number}, figures of the run; no contents and no ids';
COMMENT ON COLUMN job_run.error IS 'why it failed, without secrets';

CREATE INDEX memory_tenant ON memory (tenant, id);
CREATE INDEX experience_tenant ON experience (tenant, id) WHERE status = 'active';
CREATE INDEX memory_cooling ON memory (tenant, (floor(ln(greatest(heat, 1e-6)) * 10)::integer), heat_at)
    WHERE state = 'active' AND NOT pinned AND conflict_id IS NULL;
COMMENT ON INDEX memory_cooling IS 'finds what is about to turn cold whatever the rate of cooling is: within one step of heat (a tenth on the scale of its logarithm) time decides';
CREATE INDEX memory_tenant_expires ON memory (tenant, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX retrieval_log_age ON retrieval_log (tenant, at);
CREATE INDEX task_run_age ON task_run (tenant, started_at);
CREATE INDEX idempotency_key_tenant_age ON idempotency_key (tenant, created_at);
ALTER TABLE index_outbox ADD COLUMN sweep boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN index_outbox.sweep IS 'set by reconcile: whatever else the index holds of it must go, also when it is at its first version';
"""

RETRIEVALS = """
ALTER TABLE retrieval_log ADD COLUMN hit_count integer NOT NULL DEFAULT 0;
UPDATE retrieval_log SET hit_count = jsonb_array_length(hits);
CREATE INDEX retrieval_log_hits ON retrieval_log USING gin (jsonb_path_query_array(hits, '$[*].id'));
COMMENT ON TABLE retrieval_log IS 'What was asked: searches, contexts, first injections of tasks and queries for experiences; what came back and whether it was used';
COMMENT ON COLUMN retrieval_log.source IS 'search, context, task_start or experience';
COMMENT ON COLUMN retrieval_log.hits IS '[{id, score, lanes}] of a search, [{id, score, grade, what}] of a context, [{id, score, match, lanes, what}] of a query for experiences, in the order returned';
COMMENT ON COLUMN retrieval_log.used_ids IS 'which of the hits somebody said were used, or a finished task showed to be';
COMMENT ON COLUMN retrieval_log.hit_count IS 'how many there were when it answered; erasing a memory takes it out of hits and leaves this';
CREATE TABLE retrieval_forgotten (
    tenant text        NOT NULL,
    owner  bytea       NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, owner)
);
COMMENT ON TABLE retrieval_forgotten IS 'Users erased lately: what another process still holds of their searches is not written any more';
COMMENT ON COLUMN retrieval_forgotten.tenant IS 'whose user it was';
COMMENT ON COLUMN retrieval_forgotten.owner IS 'sha256 over tenant and user: nobody can read from it who it was';
COMMENT ON COLUMN retrieval_forgotten.at IS 'searches that were asked until then are dropped; the row goes after [retrievals] forgotten_days';
"""

REEMBED = """
CREATE TABLE embedding_collection (
    collection  text        PRIMARY KEY,
    role        text        NOT NULL CHECK (role IN ('active', 'building', 'ready', 'kept', 'dropped')),
    config      jsonb       NOT NULL,
    fingerprint jsonb       NOT NULL,
    enqueued    boolean     NOT NULL DEFAULT false,
    served      boolean     NOT NULL DEFAULT false,
    since       timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX embedding_collection_active ON embedding_collection (role) WHERE role = 'active';
CREATE UNIQUE INDEX embedding_collection_second ON embedding_collection ((true)) WHERE role IN ('building', 'ready', 'kept');
COMMENT ON TABLE embedding_collection IS 'Which embedding model serves, and which second collection of vectors is being built or kept';
COMMENT ON COLUMN embedding_collection.collection IS 'name in Qdrant: alias and a hash of the fingerprint';
COMMENT ON COLUMN embedding_collection.role IS 'active: serves; building, ready: will; kept: did, for a rollback; dropped: did once';
COMMENT ON COLUMN embedding_collection.config IS 'how the model is opened, without secrets and folders';
COMMENT ON COLUMN embedding_collection.fingerprint IS 'what makes its vectors comparable';
COMMENT ON COLUMN embedding_collection.enqueued IS 'false: the collection is new, and everything has yet to be put into its outbox';
COMMENT ON COLUMN embedding_collection.served IS 'it was active once, so an environment that still names its model is merely out of date';
COMMENT ON COLUMN embedding_collection.since IS 'when it got its role';

CREATE TABLE shadow_outbox (LIKE index_outbox INCLUDING ALL);
CREATE INDEX shadow_outbox_erased ON shadow_outbox (available_at) WHERE user_id IS NOT NULL;
COMMENT ON TABLE shadow_outbox IS 'As index_outbox, for the second collection: while there is one, a trigger puts every change here too';
COMMENT ON COLUMN shadow_outbox.user_id IS 'set when the memory or experience was erased; empty where only its vectors are left to remove';
CREATE FUNCTION copy_to_shadow_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO shadow_outbox (memory_id, tenant, user_id, sweep) SELECT NEW.memory_id, NEW.tenant,
    CASE WHEN NEW.user_id IS NOT NULL THEN NEW.user_id
         WHEN NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = NEW.memory_id)
          AND NOT EXISTS (SELECT 1 FROM experience x WHERE x.id = NEW.memory_id) THEN '' END, NEW.sweep
    WHERE EXISTS (SELECT 1 FROM embedding_collection WHERE role IN ('building', 'ready', 'kept'))
    ON CONFLICT (memory_id) DO UPDATE SET user_id = coalesce(excluded.user_id, shadow_outbox.user_id),
        sweep = excluded.sweep OR shadow_outbox.sweep, seq = excluded.seq,
        state = 'pending', attempts = 0, available_at = now(), error = NULL; RETURN NULL; END $$;
CREATE TRIGGER index_outbox_shadow AFTER INSERT OR UPDATE OF seq ON index_outbox
    FOR EACH ROW EXECUTE FUNCTION copy_to_shadow_outbox();

CREATE TABLE embedding_process (
    process  uuid        PRIMARY KEY,
    host     text        NOT NULL,
    serves   text        NOT NULL,
    prepared text,
    error    text,
    seen_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE embedding_process IS 'Running services, while there is a second collection: which model each serves with and which it has loaded';
COMMENT ON COLUMN embedding_process.process IS 'made up when the process starts';
COMMENT ON COLUMN embedding_process.host IS 'machine and process number, for people';
COMMENT ON COLUMN embedding_process.serves IS 'the collection that it searches now';
COMMENT ON COLUMN embedding_process.prepared IS 'the collection whose model it has loaded and will switch to';
COMMENT ON COLUMN embedding_process.error IS 'why it could not load that model';
COMMENT ON COLUMN embedding_process.seen_at IS 'when it last said so';
"""

UP = (TASKS, AGEING, TURNS, CONTEXTS, LESSONS, JOBS, RETRIEVALS, REEMBED)
UNDO_REEMBED = """
DROP TABLE embedding_process;
DROP TRIGGER index_outbox_shadow ON index_outbox;
DROP FUNCTION copy_to_shadow_outbox();
DROP TABLE shadow_outbox;
DROP TABLE embedding_collection;
"""
UNDO_RETRIEVALS = """
DROP TABLE retrieval_forgotten;
DROP INDEX retrieval_log_hits;
ALTER TABLE retrieval_log DROP COLUMN hit_count;
"""
UNDO_JOBS = """
ALTER TABLE index_outbox DROP COLUMN sweep;
DROP INDEX idempotency_key_tenant_age;
DROP INDEX task_run_age;
DROP INDEX retrieval_log_age;
DROP INDEX memory_tenant_expires;
DROP INDEX memory_cooling;
DROP INDEX experience_tenant;
DROP INDEX memory_tenant;
DROP INDEX job_run_tenant_job;
DROP INDEX job_run_tenant;
DROP INDEX job_run_whole;
ALTER TABLE job_run DROP COLUMN tenant, DROP COLUMN part_of, DROP COLUMN started_by, DROP COLUMN due_at, DROP COLUMN done;
"""
UNDO_AGEING = """
DROP TABLE memory_feedback;
ALTER TABLE erased DROP COLUMN owner;
ALTER TABLE memory DROP COLUMN written_by;
"""
DOWN = (
    UNDO_REEMBED
    + UNDO_RETRIEVALS
    + UNDO_JOBS
    + "DROP TABLE experience_feedback;\nDROP TABLE experience_gone;\nALTER INDEX experience_conditions RESET (fastupdate);\nCOMMENT ON INDEX experience_conditions IS NULL;\n"
    + "DROP INDEX retrieval_log_task;\nALTER TABLE retrieval_log DROP COLUMN task_id;\n"
    + "DROP TABLE turn_written;\n"
    + UNDO_AGEING
    + "DROP INDEX episodic_memory_tool_use;\nDROP TABLE task_run;\n"
)


def upgrade() -> None:
    for block in UP:
        _run(block)


def downgrade() -> None:
    _run(DOWN)


def _run(statements: str) -> None:
    """One by one; SQLAlchemy would take a colon for a parameter."""
    for statement in filter(None, (part.strip() for part in statements.split(";\n"))):
        op.execute(statement.replace(":", r"\:"))
