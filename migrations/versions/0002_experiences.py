"""What serving experiences needs: keyword terms, evidence, versions, a change counter per user, and the effort of past runs."""

from alembic import op

revision = "0002"
down_revision = "0001"

UP = """
CREATE SEQUENCE experience_change_seq;
ALTER TABLE experience
    ADD COLUMN rule         text,
    ADD COLUMN source_steps integer[] NOT NULL DEFAULT '{}',
    ADD COLUMN search_terms tsvector  NOT NULL DEFAULT '',
    ADD COLUMN term_count   integer   NOT NULL DEFAULT 0,
    ADD COLUMN changed_seq  bigint    NOT NULL DEFAULT 0;
CREATE INDEX experience_same_conditions ON experience (tenant, user_id, condition_hash, updated_at DESC);
CREATE INDEX experience_changed ON experience (tenant, user_id, changed_seq);
CREATE INDEX experience_terms ON experience USING gin (search_terms) WHERE status = 'active';
CREATE INDEX experience_patterns ON experience (tenant, user_id)
    WHERE status = 'active' AND conditions @> '[{"operator": "matches"}]';
CREATE INDEX experience_sources ON experience USING gin (source_memory_ids) WHERE source_memory_ids <> '{}';
CREATE INDEX experience_superseded_by ON experience (superseded_by) WHERE superseded_by IS NOT NULL;
COMMENT ON COLUMN experience.id IS 'UUIDv7: sorts by creation time';
COMMENT ON COLUMN experience.tenant IS 'who owns the row; comes from the API key, never from a request';
COMMENT ON COLUMN experience.user_id IS 'whose lesson it is; *shared is the common pool of the tenant';
COMMENT ON COLUMN experience.agent_id IS 'the agent that learned it; the others of the user may use it too';
COMMENT ON COLUMN experience.task_type IS 'the kind of task it was learned in; part of condition_hash';
COMMENT ON COLUMN experience.conditions IS '[{field, operator, value}], all of which must hold; normalised';
COMMENT ON COLUMN experience.condition_hash IS 'sha256 of the normalised conditions, task_type, tenant and user; one active row each';
COMMENT ON COLUMN experience.action IS 'what to do then';
COMMENT ON COLUMN experience.avoid IS 'what not to do then';
COMMENT ON COLUMN experience.rationale IS 'why';
COMMENT ON COLUMN experience.origin IS 'what it was learned from';
COMMENT ON COLUMN experience.confidence IS '0..1 as of the last ledger entry; fades since, computed when read';
COMMENT ON COLUMN experience.confidence_ledger IS '[{at, cause, delta}]; the deltas add up to confidence';
COMMENT ON COLUMN experience.tags IS 'labels';
COMMENT ON COLUMN experience.source_memory_ids IS 'the memories it was made from';
COMMENT ON COLUMN experience.status IS 'active, superseded (another lesson for these conditions counts) or retired (by a person)';
COMMENT ON COLUMN experience.superseded_by IS 'the lesson that counts instead';
COMMENT ON COLUMN experience.use_count IS 'how often feedback said that it was used';
COMMENT ON COLUMN experience.success_count IS 'uses after which the task went well';
COMMENT ON COLUMN experience.failure_count IS 'uses after which it did not';
COMMENT ON COLUMN experience.version IS '1 at first, +1 with each change; see experience_version';
COMMENT ON COLUMN experience.created_at IS 'when it was learned';
COMMENT ON COLUMN experience.updated_at IS 'when it was last changed';
COMMENT ON COLUMN experience.rule IS 'the rule that found it; NULL when a person wrote it';
COMMENT ON COLUMN experience.source_steps IS 'numbers, from 0, of the steps of the run that it was learned from';
COMMENT ON COLUMN experience.search_terms IS 'keyword terms made by the service; each begins with a short hash of tenant and user';
COMMENT ON COLUMN experience.term_count IS 'number of terms before they were made distinct';
COMMENT ON COLUMN experience.changed_seq IS 'experience_change.counter of the last change: what an index in memory has yet to read';

CREATE TABLE experience_version (
    experience_id uuid        NOT NULL,
    version       integer     NOT NULL,
    tenant        text        NOT NULL,
    user_id       text        NOT NULL,
    at            timestamptz NOT NULL,
    actor         text        NOT NULL,
    cause         text        NOT NULL,
    task_id       text,
    changes       jsonb       NOT NULL,
    snapshot      jsonb       NOT NULL,
    PRIMARY KEY (experience_id, version)
);
CREATE INDEX experience_version_user ON experience_version (tenant, user_id);
COMMENT ON TABLE experience_version IS 'Each version of an experience, the present one too, and what led to it';
COMMENT ON COLUMN experience_version.cause IS 'created, reinforced, superseded, restored, patched, feedback_success or feedback_failure';
COMMENT ON COLUMN experience_version.task_id IS 'the task that the feedback was about';
COMMENT ON COLUMN experience_version.changes IS '{field: {from, to}} against the version before';
COMMENT ON COLUMN experience_version.snapshot IS 'the experience as of this version, without its ledger';

CREATE TABLE experience_change (
    tenant  text   NOT NULL,
    user_id text   NOT NULL,
    counter bigint NOT NULL,
    rebuilt bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);
COMMENT ON TABLE experience_change IS 'One row per user with experiences; its lock lines the writers of a user up';
COMMENT ON COLUMN experience_change.counter IS 'rises with each change of the experiences of the user';
COMMENT ON COLUMN experience_change.rebuilt IS 'counter of the last erasure: indexes in memory that are older are built anew';

CREATE TABLE run_effort (
    id                   bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant               text             NOT NULL,
    user_id              text             NOT NULL,
    task_type            text             NOT NULL,
    at                   timestamptz      NOT NULL,
    steps                double precision NOT NULL,
    tool_calls           double precision NOT NULL,
    repeated_calls       double precision NOT NULL,
    argument_chars       double precision NOT NULL,
    untouched_goal_terms double precision NOT NULL,
    closing_chars        double precision NOT NULL,
    duration_ms          double precision
);
CREATE INDEX run_effort_newest ON run_effort (tenant, user_id, task_type, id DESC);
COMMENT ON TABLE run_effort IS 'What the newest reviewed runs of each user and task type took: the baseline of the next review';
COMMENT ON COLUMN run_effort.task_type IS 'empty for runs that named none';
COMMENT ON COLUMN run_effort.duration_ms IS 'NULL unless every step told its own'
"""

DOWN = """
DROP TABLE run_effort;
DROP TABLE experience_change;
DROP TABLE experience_version;
DROP INDEX experience_same_conditions;
DROP INDEX experience_changed;
DROP INDEX experience_terms;
DROP INDEX experience_patterns;
DROP INDEX experience_sources;
DROP INDEX experience_superseded_by;
ALTER TABLE experience DROP COLUMN rule, DROP COLUMN source_steps, DROP COLUMN search_terms, DROP COLUMN term_count,
    DROP COLUMN changed_seq;
DROP SEQUENCE experience_change_seq
"""


def upgrade() -> None:
    for statement in UP.strip().split(";\n"):
        op.execute(statement.replace(":", r"\:"))


def downgrade() -> None:
    for statement in DOWN.strip().split(";\n"):
        op.execute(statement)
