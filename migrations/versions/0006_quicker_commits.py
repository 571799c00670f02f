"""Less work in each write: what only a repeated question needs, and a copy for a collection that is not there, cost every one of them.

Two functions are replaced, which takes no time and no lock on a table however many memories there are.
"""

from alembic import context, op

revision = "0006"
down_revision = "0005"

COLUMNS = """id, tenant, kind, user_id, content, summary, created_at, updated_at, occurred_at, agent_id, session_id, task_id,
    event_type, category, tags, entities, tool_calls, outcome, importance, confidence, heat, heat_at, state, pinned,
    superseded_by, valid_from, valid_to, related_ids, source_memory_ids, metadata, version, conflict_id, expires_at,
    last_accessed_at, access_count, written_by, content_hash, search_terms, term_count"""

# As in 0005, but without the look for ids that are there already, a tenth of the statement: only who asks again
# can find one, and looks first (`keeping.kept_before`).
KEEP = f"""
CREATE OR REPLACE FUNCTION hindsight_keep_new(given json, at timestamptz) RETURNS uuid[] LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    free memory[];
    kept uuid[];
BEGIN
    SELECT array_agg(json_populate_record(NULL::memory, g.one -> 'row')) INTO free
    FROM json_array_elements(given) AS g(one) WHERE pg_try_advisory_xact_lock((g.one ->> 'lock')::bigint);
    WITH written AS (
        INSERT INTO memory ({COLUMNS})
        SELECT {COLUMNS} FROM unnest(free) AS f
        WHERE NOT EXISTS (
            SELECT FROM memory m WHERE m.tenant = f.tenant AND m.user_id = f.user_id AND m.content_hash = f.content_hash
            AND m.state IN ('active', 'cold') AND (m.expires_at IS NULL OR m.expires_at > at) OFFSET 0)
        RETURNING id, tenant),
    queued AS (
        INSERT INTO index_outbox (memory_id, tenant) SELECT id, tenant FROM written)
    SELECT array_agg(id) INTO kept FROM written;
    RETURN kept;
END $$;
"""
KEEP_TOLD = """
COMMENT ON FUNCTION hindsight_keep_new IS '[{lock, row}] of new memories, each with its outbox row, in one transaction: ids of those that are kept now. Left out are those whose text a live memory of the user has, or somebody is writing at this moment'
"""

# As in 0003, but the question whether there is a second collection comes before the statement that needs one: a twentieth of a write.
SHADOW = """
CREATE OR REPLACE FUNCTION copy_to_shadow_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM embedding_collection WHERE role IN ('building', 'ready', 'kept')) THEN RETURN NULL; END IF;
    INSERT INTO shadow_outbox (memory_id, tenant, user_id, sweep) SELECT NEW.memory_id, NEW.tenant,
        CASE WHEN NEW.user_id IS NOT NULL THEN NEW.user_id
             WHEN NOT EXISTS (SELECT FROM memory m WHERE m.id = NEW.memory_id)
              AND NOT EXISTS (SELECT FROM experience x WHERE x.id = NEW.memory_id) THEN '' END, NEW.sweep
    ON CONFLICT (memory_id) DO UPDATE SET user_id = coalesce(excluded.user_id, shadow_outbox.user_id),
        sweep = excluded.sweep OR shadow_outbox.sweep, seq = excluded.seq,
        state = 'pending', attempts = 0, available_at = now(), error = NULL;
    RETURN NULL;
END $$
"""
SHADOW_BEFORE = """
CREATE OR REPLACE FUNCTION copy_to_shadow_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO shadow_outbox (memory_id, tenant, user_id, sweep) SELECT NEW.memory_id, NEW.tenant,
    CASE WHEN NEW.user_id IS NOT NULL THEN NEW.user_id
         WHEN NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = NEW.memory_id)
          AND NOT EXISTS (SELECT 1 FROM experience x WHERE x.id = NEW.memory_id) THEN '' END, NEW.sweep
    WHERE EXISTS (SELECT 1 FROM embedding_collection WHERE role IN ('building', 'ready', 'kept'))
    ON CONFLICT (memory_id) DO UPDATE SET user_id = coalesce(excluded.user_id, shadow_outbox.user_id),
        sweep = excluded.sweep OR shadow_outbox.sweep, seq = excluded.seq,
        state = 'pending', attempts = 0, available_at = now(), error = NULL; RETURN NULL; END $$
"""


def upgrade() -> None:
    _run(KEEP, KEEP_TOLD, SHADOW)


def downgrade() -> None:
    before = context.script.get_revision("0005").module
    _run("DROP FUNCTION hindsight_keep_new(json, timestamptz)", before.KEEP, before.TOLD, SHADOW_BEFORE)


def _run(*statements: str) -> None:
    """SQLAlchemy would take a colon for a parameter."""
    for statement in statements:
        op.execute(statement.replace(":", r"\:"))
