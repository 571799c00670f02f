"""Does what a user said after one task reach the next one like it, as it was meant?  Through the routes alone."""

from typing import Any

import httpx
import pytest

STEPS = [{"tool": tool, "arguments": {}, "status": "success"} for tool in ("query_db", "write_file")]
WEEKLY = "Write the weekly sales report for the board"


async def lessons_of(client: httpx.AsyncClient, user: str, feedback: str, goal: str = WEEKLY) -> list[dict[str, Any]]:
    run = {"goal": goal, "task_type": "report", "outcome": "success", "steps": STEPS, "feedback": feedback}
    answer = await client.post("/v1/experiences/distill", json={"user_id": user, "trajectory": run})
    assert answer.status_code == 200, answer.text
    return [one for one in answer.json()["experiences"] if one["experience"]["rule"] == "user_feedback"]


async def first_context(client: httpx.AsyncClient, user: str, goal: str, task: str, task_type: str = "report") -> str:
    body = {"user_id": user, "goal": goal, "task_type": task_type, "task_id": task}
    answer = await client.post("/v1/tasks", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["context"]["text"])


@pytest.mark.parametrize(
    "feedback",
    [
        "Always use the read replica, never the primary.",
        "Don't forget to run the migrations first.",
        "别忘了先运行迁移。",
    ],
)
async def test_feedback_is_never_told_as_its_opposite(client: httpx.AsyncClient, user: str, feedback: str) -> None:
    [told] = await lessons_of(client, user, feedback)
    assert (told["status"], told["experience"]["action"]) == ("created", feedback)
    assert feedback not in (told["experience"]["avoid"] or "")


async def test_praise_is_refused_with_a_reason(client: httpx.AsyncClient, user: str) -> None:
    [told] = await lessons_of(client, user, "Good job!")
    assert (told["status"], told["reason"]) == ("rejected", "the feedback judges the run and tells nothing to do")


async def test_feedback_after_a_finished_task_is_in_the_context_of_a_similar_one(
    client: httpx.AsyncClient, user: str
) -> None:
    await first_context(client, user, WEEKLY, "first")
    for step in STEPS:
        noted = await client.post("/v1/working-memory/first/steps", json={"user_id": user, **step})
        assert noted.status_code == 200, noted.text
    said = "Always round amounts to whole euros and never include test shops."
    done = await client.post("/v1/tasks/first/finish", json={"user_id": user, "outcome": "success", "feedback": said})
    assert done.status_code == 200, done.text
    assert said in await first_context(client, user, "Write the monthly revenue report for the board", "second")
    assert said in await first_context(client, user, "Prepare the quarterly sales report", "third")
    assert said not in await first_context(client, user, "Book a hotel in Graz", "fourth", "travel")


async def test_a_second_wish_after_the_same_task_leaves_the_first_in_force(
    client: httpx.AsyncClient, user: str
) -> None:
    wishes = ("Round amounts to whole euros.", "Exclude test customers.")
    for wish in wishes:
        [told] = await lessons_of(client, user, wish)
        assert told["status"] == "created"
    context = await first_context(client, user, "Prepare the quarterly sales report", "next")
    assert all(wish in context for wish in wishes)
