"""Which older memories might a new statement contradict, and who says so?  Values between a write's two halves.

Before the transaction the rules and, where they say nothing, a language model suspect memories; inside it `contradictions` looks at
the rows again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from memory_service.write.conflict_model import Opinion


@dataclass(frozen=True, slots=True)
class Suspected:
    """`by_rules` are ids; `opinions` are a model's; `by` is who looked last: the model only when it answered."""

    by: Literal["model", "rules"]
    by_rules: tuple[UUID, ...] = ()
    opinions: Mapping[UUID, Opinion] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[UUID, ...]:
        return (*self.by_rules, *self.opinions)
