"""What many memories need: who found a conflict, and indexes that stay fast.

Each block belongs to one feature and stands alone.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

CONFLICTS = """
ALTER TABLE memory_conflict ADD COLUMN found_by text NOT NULL DEFAULT 'rules' CHECK (found_by IN ('rules', 'model'));
COMMENT ON COLUMN memory_conflict.found_by IS 'what saw the contradiction: the rules, or a language model where they said nothing';
"""

ERASURE = """
CREATE INDEX memory_of_conflict ON memory (conflict_id) WHERE conflict_id IS NOT NULL;
CREATE INDEX memory_conflict_old ON memory_conflict (old_id);
CREATE INDEX memory_conflict_new ON memory_conflict (new_id);
COMMENT ON INDEX memory_conflict_old IS 'Erasing a memory, and resolving a conflict, look for all conflicts that it is part of';
"""

TERMS = """
ALTER INDEX episodic_memory_terms SET (gin_pending_list_limit = 256);
ALTER INDEX semantic_memory_terms SET (gin_pending_list_limit = 256);
ALTER INDEX experience_terms SET (gin_pending_list_limit = 256);
COMMENT ON INDEX episodic_memory_terms IS 'A short pending list (256 kB): a search makes up to 24 look-ups, each of which reads all of it (131 ms at 4 MB, 51 ms at 256 kB)';
"""

# A list counts what it lists, and keyword search counts a user's corpus: from the index alone.  For a user with 107,000 of a million
# memories the count took 1,320 ms and 108,000 pages, now 62 ms and 3,800; the corpus 33 ms, now 3.  The index grows by an eighth.
LISTS = """
DROP INDEX episodic_memory_created;
DROP INDEX semantic_memory_created;
CREATE INDEX episodic_memory_created ON episodic_memory (tenant, user_id, created_at DESC, id DESC) INCLUDE (state, expires_at, term_count);
CREATE INDEX semantic_memory_created ON semantic_memory (tenant, user_id, created_at DESC, id DESC) INCLUDE (state, expires_at, term_count);
COMMENT ON INDEX episodic_memory_created IS 'Lists, newest first; the further columns let counts be made from it alone';
"""

UP = (CONFLICTS, ERASURE, TERMS, LISTS)
DOWN = """
DROP INDEX episodic_memory_created;
DROP INDEX semantic_memory_created;
CREATE INDEX episodic_memory_created ON episodic_memory (tenant, user_id, created_at DESC, id DESC);
CREATE INDEX semantic_memory_created ON semantic_memory (tenant, user_id, created_at DESC, id DESC);
COMMENT ON INDEX episodic_memory_terms IS NULL;
ALTER INDEX experience_terms RESET (gin_pending_list_limit);
ALTER INDEX semantic_memory_terms RESET (gin_pending_list_limit);
ALTER INDEX episodic_memory_terms RESET (gin_pending_list_limit);
DROP INDEX memory_conflict_new;
DROP INDEX memory_conflict_old;
DROP INDEX memory_of_conflict;
ALTER TABLE memory_conflict DROP COLUMN found_by;
"""


def upgrade() -> None:
    for block in UP:
        _run(block)


def downgrade() -> None:
    _run(DOWN)


def _run(statements: str) -> None:
    """One by one; SQLAlchemy would take a colon for a parameter."""
    for statement in filter(None, (part.strip() for part in statements.split(";\n"))):
        op.execute(statement.replace(":", r"\:"))
