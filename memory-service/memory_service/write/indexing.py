"""Which text is a memory found by?  One answer for the vector index, the keyword index and the duplicate check.

Pure.  The relay asks for `passages`, the writer for `indexed_text`, the search for `keyword_prefix`.
"""

import base64
import hashlib

from memory_service.domain import Memory
from memory_service.stores.postgres.memories import IndexedText
from memory_service.terms import keyword_terms, tsvector_literal
from memory_service.vocabulary import Vocabulary
from memory_service.write.duplicates import content_hash

# Postgres refuses a tsvector above 1 MiB of lexemes; positions and padding need some of it.
TSVECTOR_BYTES_MAX = 1_000_000
PREFIX_BYTES = 3


def keyword_prefix(tenant: str, user_id: str) -> str:
    """Begins every keyword term of this user: a posting list then holds one user's memories only.

    Four characters, since each term of a 256 KiB text carries them.  Users may collide; the columns still decide.
    """
    digest = hashlib.blake2b(f"{tenant}\0{user_id}".encode(), digest_size=PREFIX_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode()


def keyword_text(memory: Memory) -> str:
    """The words that the keyword index holds: content, labels, and a summary that says more than the content."""
    parts = [memory.content]
    if memory.summary not in memory.content:
        parts.append(memory.summary)
    parts += [memory.category or "", *memory.tags, *(e.name for e in memory.entities if e.name not in memory.content)]
    return "\n".join(part for part in parts if part)


def indexed_text(memory: Memory, vocabulary: Vocabulary) -> IndexedText:
    """What Postgres stores about the text of this memory."""
    terms = keyword_terms(keyword_text(memory), vocabulary)
    prefix = keyword_prefix(memory.tenant, memory.user_id)
    return IndexedText(content_hash(memory.content), tsvector_literal(terms, prefix, TSVECTOR_BYTES_MAX), len(terms))


def passage(memory: Memory, vocabulary: Vocabulary) -> str:
    """The text that is cut into chunks and embedded."""
    text = memory.content if memory.summary in memory.content else f"{memory.summary}\n{memory.content}"
    return vocabulary.normalise(text)


def lock_key(tenant: str, user_id: str, text_hash: bytes) -> int:
    """A signed 64-bit number for pg_advisory_xact_lock: equal texts of a user get equal keys."""
    digest = hashlib.blake2b(f"{tenant}\0{user_id}\0".encode() + text_hash, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
