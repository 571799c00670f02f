"""How do hundreds of keyword candidates come out of Postgres without costing hundreds of rows?

One row of packed columns, which numpy reads as they are.  What BM25 makes of them is recall/fusion.py's work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from psycopg.rows import TupleRow

from memory_service.domain import Key


@dataclass(frozen=True, slots=True)
class KeywordHits:
    """Column-wise, in the order of ids.

    `weights[n][t]` is ts_rank of query term t alone in memory n, 0 when absent; `lengths` are in terms.
    """

    ids: Sequence[Key]
    lengths: Sequence[int] | npt.NDArray[np.int32]
    weights: Sequence[Sequence[float]] | npt.NDArray[np.float32]

    @classmethod
    def unpacked(cls, row: TupleRow | None, terms: int) -> "KeywordHits":
        """From the one row of `packed`; `terms` is how many terms were asked for."""
        ids, lengths, weights = row if row is not None else (None, None, None)
        return cls(
            np.frombuffer(ids or b"", "V16").tolist(),
            np.frombuffer(lengths or b"", ">i4"),
            np.frombuffer(weights or b"", ">f4").reshape(-1, terms),
        )


def packed(candidates: str, names: Sequence[str]) -> str:
    """The statement whose only row is KeywordHits of `candidates`, a query for id, term_count and search_terms.

    `names` are the parameters that hold the terms.  Hundreds of rows as rows cost the driver more than all else that a
    search does (2.5 ms against 0.2 for 500 rows of ten columns).  ts_rank takes several times as long as the look whether the
    term is there, and most terms are not in most candidates.
    """
    weight = "CASE WHEN c.search_terms @@ %({0})s::tsquery THEN ts_rank(c.search_terms, %({0})s::tsquery) ELSE 0 END"
    weights = " || ".join(f"float4send({weight.format(name)})" for name in names)
    return f"""SELECT string_agg(uuid_send(c.id), ''::bytea), string_agg(int4send(c.term_count), ''::bytea),
        string_agg({weights}, ''::bytea) FROM ({candidates}) AS c"""
