"""How does a lesson read as a test case?  given / when / then from its conditions and its action.  Pure."""

from memory_service.domain import Experience, Json
from memory_service.shapes import to_json

WORDS = {
    "eq": "is", "ne": "is not", "in": "is one of", "nin": "is none of", "gt": "is above", "gte": "is at least",
    "lt": "is below", "lte": "is at most", "contains": "contains", "not_contains": "does not contain",
    "starts_with": "starts with", "matches": "matches",
}  # fmt: skip


def scenario_of(experience: Experience) -> Json:
    """`given` has one sentence per condition that is not about the call, `when` the call, `then` what to do and not to do."""
    about_call = [c for c in experience.conditions if c["field"].split(".")[0] in ("tool", "arguments")]
    given = [sentence(c) for c in experience.conditions if c not in about_call]
    if experience.task_type is not None:
        given.insert(0, f"the task is of type {experience.task_type}")
    when = "a call is about to be made where " + " and ".join(map(sentence, about_call)) if about_call else ""
    when = when or "the agent is about to act"
    then = [experience.action] + ([f"do not: {experience.avoid}"] if experience.avoid else [])
    lines = [f"Given {' and '.join(given)}"] if given else []
    lines += [f"When {when}", f"Then {then[0]}", *(f"But {other}" for other in then[1:])]
    return {"id": str(experience.id), "given": given, "when": when, "then": then, "text": "\n".join(lines)}


def sentence(condition: Json) -> str:
    """`arguments.path starts with "/api/v1"`"""
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    if operator == "exists":
        return f"{field} is {'known' if value else 'not known'}"
    return f"{field} {WORDS[operator]} {to_json(value).decode()}"
