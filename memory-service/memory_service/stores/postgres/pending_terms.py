"""Where are the keyword entries of the last writes?

A GIN index collects them in a list (up to 256 KB, migration 0004) before it sorts them in: writes cost a fifth of what they would,
but every look for a term reads all of the list.
"""

from memory_service.stores.postgres.pool import Connection, fetch_one

KEYWORD_INDEXES = ("episodic_memory_terms", "semantic_memory_terms", "experience_terms")


async def settle(connection: Connection) -> int:
    """Sort them in; how many pages of the lists that emptied.  Indexes that are not this role's are left to autovacuum."""
    row = await fetch_one(
        connection,
        """SELECT COALESCE(sum(gin_clean_pending_list(c.oid)), 0)::int FROM pg_class c
           WHERE c.relname = ANY(%(names)s) AND c.relkind = 'i' AND pg_table_is_visible(c.oid)
             AND pg_has_role(c.relowner, 'USAGE') AND NOT pg_is_in_recovery()""",
        {"names": list(KEYWORD_INDEXES)},
    )
    return row[0] if row else 0
