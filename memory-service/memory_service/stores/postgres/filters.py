"""How does a MemoryFilter become SQL?

The only place where filters are evaluated: every lane and every list ends here, so all of them mean the same.  Values
travel as parameters; the text of a statement is made of constants of this file only.  Parsing and refusing what a caller
sent is recall/filters.py's work; here everything is already valid.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, get_args

from psycopg.types.json import Jsonb

from memory_service.domain import FieldCondition, MemoryFilter, State
from memory_service.timestamps import instant, parse_time

STATES = get_args(State)
INDEX_STATE = (
    "COALESCE((SELECT CASE o.state WHEN 'dead' THEN 'failed' ELSE 'pending' END"
    " FROM index_outbox o WHERE o.memory_id = m.id), 'indexed')"
)
TEXT_FIELDS = {
    **{
        name: f"m.{name}"
        for name in (
            "kind",
            "user_id",
            "agent_id",
            "session_id",
            "task_id",
            "content",
            "summary",
            "event_type",
            "category",
            "outcome",
            "state",
        )
    },
    **{name: f"m.{name}::text" for name in ("id", "superseded_by", "conflict_id")},
    "index.state": INDEX_STATE,
}
NUMBER_FIELDS = {name: f"m.{name}" for name in ("importance", "confidence", "version", "access_count")} | {
    "heat": "(CASE WHEN m.pinned THEN m.heat ELSE m.heat * power(%(heat_decay)s,"
    " extract(epoch FROM greatest(%(now)s - m.heat_at, interval '0')) / %(heat_decay_s)s) END)"
}
TIME_FIELDS = {
    name: f"m.{name}"
    for name in (
        "occurred_at",
        "created_at",
        "updated_at",
        "expires_at",
        "last_accessed_at",
        "valid_from",
        "valid_to",
    )
}
BOOL_FIELDS = {"pinned": "m.pinned"}
JSON_FIELDS = {
    "entities": "m.entities",
    "tool_calls": "m.tool_calls",
    "metadata": "m.metadata",
    **{name: f"to_jsonb(m.{name})" for name in ("tags", "related_ids")},
}
SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class SqlFilter:
    """The WHERE clause over `memory AS m` and its parameters, whose names begin with `f_` (and now, heat_…)."""

    def __init__(self, chosen: MemoryFilter, heat_decay: float = 0.9, heat_decay_s: float = 604_800.0) -> None:
        self.parameters: dict[str, Any] = {"now": chosen.now, "heat_decay": heat_decay, "heat_decay_s": heat_decay_s}
        owner, others = self._owner(chosen), self._clauses(chosen)
        self.sql = " AND ".join([*owner, *others])
        # The same without a way into the indexes that begin with the owner: for a statement that has a narrower one, and that
        # would otherwise read through all of the owner's rows to combine the two.
        self.sql_checked = " AND ".join([*(f"({clause}) IS TRUE" for clause in owner), *others])

    def _owner(self, chosen: MemoryFilter) -> list[str]:
        return [f"m.tenant = {self._bind(chosen.tenant)}", self._user(chosen.user_ids)]

    def _clauses(self, chosen: MemoryFilter) -> list[str]:
        clauses = ["(m.expires_at IS NULL OR m.expires_at > %(now)s)"]
        if chosen.kinds:
            clauses.append(f"m.kind = ANY({self._bind(list(chosen.kinds))})")
        if chosen.as_of is not None:
            clauses += self._believed_at(chosen.as_of)
        else:
            clauses.append(_in_states(chosen.states))
        if chosen.tags:
            clauses.append(
                f"m.tags {'&&' if chosen.tag_match == 'any' else '@>'} {self._bind(list(chosen.tags))}::text[]"
            )
        for name in ("agent_id", "session_id", "task_id"):
            if (value := getattr(chosen, name)) is not None:
                clauses.append(f"m.{name} = {self._bind(value)}")
        if chosen.since is not None:
            clauses.append(f"m.occurred_at >= {self._bind(chosen.since)}")
        if chosen.until is not None:
            clauses.append(f"m.occurred_at < {self._bind(chosen.until)}")
        return clauses + [self._condition(c) for c in chosen.conditions]

    def _user(self, user_ids: Sequence[str]) -> str:
        """Equality when it is one user: only then can an index that begins with the user give rows in its order."""
        if len(user_ids) == 1:
            return f"m.user_id = {self._bind(user_ids[0])}"
        return f"m.user_id = ANY({self._bind(list(user_ids))})"

    def _believed_at(self, moment: datetime) -> list[str]:
        at = self._bind(moment)
        return [
            f"COALESCE(m.valid_from, m.created_at) <= {at}",
            f"(m.valid_to IS NULL OR m.valid_to > {at})",
            "m.state <> 'compressed'",
        ]

    def _bind(self, value: Any) -> str:
        name = f"f_{len(self.parameters)}"
        self.parameters[name] = value
        return f"%({name})s"

    def _condition(self, c: FieldCondition) -> str:
        if c.field in TEXT_FIELDS:
            return self._native(TEXT_FIELDS[c.field], c, "text")
        if c.field in NUMBER_FIELDS:
            return self._native(NUMBER_FIELDS[c.field], c, "double precision")
        if c.field in BOOL_FIELDS:
            return self._native(BOOL_FIELDS[c.field], c, "boolean")
        if c.field in TIME_FIELDS:
            return self._native(TIME_FIELDS[c.field], c, "timestamptz")
        return self._json(self._json_expression(c.field), c)

    # Fields of one SQL type.  The value is of that type, null, or a list of those: recall/filters.py saw to it.

    def _native(self, expression: str, c: FieldCondition, sql_type: str) -> str:
        if c.operator == "exists":
            return f"({expression} IS {'NOT ' if c.value else ''}NULL)"
        if c.operator in ("eq", "ne"):
            clause = f"({expression} IS NOT DISTINCT FROM {self._typed(c.value, sql_type)})"
            return f"(NOT {clause})" if c.operator == "ne" else clause
        if c.operator in ("in", "nin"):
            present = [self._value(v, sql_type) for v in c.value if v is not None]
            clause = f"COALESCE({expression} = ANY({self._bind(present)}::{sql_type}[]), false)"
            if None in c.value:
                clause = f"({clause} OR {expression} IS NULL)"
            return f"(NOT {clause})" if c.operator == "nin" else clause
        if c.operator == "contains":
            return f"COALESCE(strpos({expression}, {self._bind(c.value)}) > 0, false)"
        collation = ' COLLATE "C"' if sql_type == "text" else ""
        return f"COALESCE({expression}{collation} {SIGNS[c.operator]} {self._typed(c.value, sql_type)}, false)"

    def _typed(self, value: Any, sql_type: str) -> str:
        return f"{self._bind(self._value(value, sql_type))}::{sql_type}"

    @staticmethod
    def _value(value: Any, sql_type: str) -> Any:
        """`value` in one Python type per SQL type: psycopg refuses a list of integers and floats."""
        if value is None:
            return None
        if sql_type == "timestamptz":
            return parse_time(value)
        return float(value) if sql_type == "double precision" else value

    # Fields whose type each row decides.  Values compare type-strictly, RFC 3339 strings as instants.

    def _json_expression(self, field: str) -> str:
        if field in JSON_FIELDS:
            return f"NULLIF({JSON_FIELDS[field]}, 'null'::jsonb)"
        path = field.removeprefix("metadata.")
        expression = f"m.metadata #> {self._bind(path.split('.'))}::text[]"
        if "." in path:  # a key may itself contain dots
            expression = f"COALESCE(NULLIF(m.metadata -> {self._bind(path)}::text, 'null'::jsonb), {expression})"
        return f"NULLIF({expression}, 'null'::jsonb)"

    def _json(self, expression: str, c: FieldCondition) -> str:
        if c.operator == "exists":
            return f"({expression} IS {'NOT ' if c.value else ''}NULL)"
        if c.operator in ("eq", "ne", "in", "nin"):
            values = c.value if c.operator in ("in", "nin") else [c.value]
            clause = "(" + " OR ".join(self._json_equals(expression, values)) + ")"
            return f"(NOT {clause})" if c.operator in ("ne", "nin") else clause
        if c.operator == "contains":
            return self._json_contains(expression, c)
        return self._json_order(expression, SIGNS[c.operator], c.value)

    def _json_equals(self, expression: str, values: list[Any]) -> list[str]:
        clauses = [f"{expression} IS NULL"] if None in values else []
        present = [v for v in values if v is not None]
        moments = [moment for v in present if isinstance(v, str) and (moment := instant(v)) is not None]
        if present:
            clauses.append(f"COALESCE({expression} = ANY({self._bind([Jsonb(v) for v in present])}::jsonb[]), false)")
        if moments:
            clauses.append(f"COALESCE({self._moment(expression)} = ANY({self._bind(moments)}::timestamptz[]), false)")
        return clauses

    @staticmethod
    def _moment(expression: str) -> str:
        return f"CASE WHEN jsonb_typeof({expression}) = 'string' THEN hindsight_instant({expression} #>> '{{}}') END"

    def _json_order(self, expression: str, sign: str, value: Any) -> str:
        if isinstance(value, str):
            if (moment := instant(value)) is not None:
                return f"COALESCE({self._moment(expression)} {sign} {self._bind(moment)}, false)"
            return (
                f"(CASE WHEN jsonb_typeof({expression}) = 'string' THEN ({expression} #>> '{{}}') COLLATE \"C\" {sign}"
                f" {self._bind(value)}::text ELSE false END)"
            )
        return (
            f"(CASE WHEN jsonb_typeof({expression}) = 'number' THEN ({expression} #>> '{{}}')::numeric {sign}"
            f" {self._bind(Decimal(repr(value)))}::numeric ELSE false END)"  # a float8 would lose its last digits on the way
        )

    def _json_contains(self, expression: str, c: FieldCondition) -> str:
        member = f"e.value = {self._bind(Jsonb(c.value))}::jsonb"
        substring = "false"
        if isinstance(c.value, str):
            text = self._bind(c.value)
            substring = f"strpos({expression} #>> '{{}}', {text}) > 0"
            if c.field == "entities":  # asked by name, stored as {name, type}
                member = f"({member} OR e.value ->> 'name' = {text})"
        return (
            f"(CASE jsonb_typeof({expression}) WHEN 'string' THEN {substring} WHEN 'array' THEN EXISTS"
            f" (SELECT 1 FROM jsonb_array_elements({expression}) AS e WHERE {member}) ELSE false END)"
        )


def _in_states(states: Sequence[State]) -> str:
    """As constants, since there are few: an index of active memories only is of use to a plan that knows that these are meant."""
    named = ", ".join(f"'{state}'" for state in STATES if state in states)
    return f"m.state IN ({named})" if named else "false"
