"""Which buffered messages are written now, which leave the buffer, and which wait?"""

from typing import Any
from uuid import UUID

import pytest

from memory_service.write.triggers import Message, Role
from memory_service.write.turn_codec import held_of, payload_of
from memory_service.write.turn_plan import Held, Occasion, TurnPlan, forgetting, plan_turns
from memory_service.write.turn_spans import merged_spans, spans_of, without
from tests.unit.write.turn_factories import NOW, trigger_rules


def held(*messages: tuple[Role, str], start: int = 1, **changes: Any) -> list[Held]:
    return [
        Held(number, UUID(int=number), Message(role, content, at=NOW), **changes)
        for number, (role, content) in enumerate(messages, start)
    ]


def planned(messages: list[Held], fresh: list[int] | None = None, **occasion: Any) -> TurnPlan:
    numbers = [one.number for one in messages] if fresh is None else fresh
    return plan_turns(messages, numbers, Occasion("u", "s", NOW, **occasion), trigger_rules())


def test_nothing_held_plans_nothing() -> None:
    assert planned([]) == TurnPlan()
    assert planned([], ended="t") == TurnPlan()


def test_a_plain_turn_waits() -> None:
    plan = planned(held(("user", "And the next one?"), ("assistant", "Here.")))
    assert (plan.drafts, plan.touched, plan.waiting) == ((), frozenset(), 1)


def test_a_stated_sentence_is_cut_and_the_rest_waits() -> None:
    plan = planned(held(("user", "Open it. I prefer tables. Thanks!"), ("assistant", "Opened.")))
    assert [one.content for one in plan.drafts] == ["I prefer tables."]
    assert (plan.cuts, plan.drops, plan.waiting) == ({1: ((9, 25),)}, frozenset(), 1)


def test_a_turn_that_is_nothing_but_the_statement_leaves_with_its_answer() -> None:
    plan = planned(held(("user", "I prefer tables."), ("assistant", "Tables it is.")))
    assert ([one.content for one in plan.drafts], plan.drops, plan.waiting) == (["I prefer tables."], {2}, 0)
    # An empty message stays: it tells what a later answer answers.
    assert without("I prefer tables.", plan.cuts[1]) == ""


def test_the_late_answer_to_a_statement_is_in_no_episode() -> None:
    before = held(("user", ""), cut=True)
    late = held(("assistant", "Tables it is."), start=2)
    waits = planned([*before, *late], [2])
    assert (waits.drafts, waits.waiting) == ((), 0)
    end = planned([*before, *late, *held(("user", "That's all."), start=3)], [3])
    assert ([one.content for one in end.drafts], end.drops) == (["user: That's all."], {1, 2, 3})
    only = planned([*before, *late], [2], overfull=True)
    assert (only.drafts, only.drops) == ((), {1, 2})


def test_a_tools_answer_is_kept_though_the_user_only_stated_something() -> None:
    messages = held(("user", "I prefer tables."), ("tool", "rows: 812"), ("assistant", "It has 812 rows."))
    assert (planned(messages).drops, planned(messages).waiting) == (frozenset(), 0)
    (episode,) = [one for one in planned(messages, [], overfull=True).drafts if one.kind == "episodic"]
    assert "rows: 812" in episode.content


@pytest.mark.parametrize(
    "text",
    [
        "不对，截止日期是周五，不是周四。",
        "No, the deadline is Friday, not Thursday.",
        "No, we decided on Redis, not Kafka.",
    ],
)
def test_one_statement_is_one_memory(text: str) -> None:
    plan = planned(held(("user", text), ("assistant", "Noted.")))
    assert set(plan.triggers) >= {"correction"}
    assert [(one.content, one.metadata["triggers"][0]) for one in plan.drafts] == [(text, "correction")]


def test_a_statement_is_in_the_episode_of_no_turn() -> None:
    messages = held(("user", "I prefer tables. Run it."), ("tool", "Error: disk full"), ("assistant", "It failed."))
    kinds = {one.kind: one.content for one in planned(messages).drafts}
    assert kinds["semantic"] == "I prefer tables."
    assert kinds["episodic"] == "user: Run it.\ntool: Error: disk full\nassistant: It failed."


def test_what_stays_of_a_turn_remembers_what_was_stated_in_it() -> None:
    plan = planned(held(("user", "Open it. I prefer tables."), ("assistant", "Opened.")))
    assert plan.rests == {1: ("I prefer tables.",), 2: ("I prefer tables.",)}
    assert plan.changed == {1, 2}


def test_the_rest_of_a_turn_goes_with_the_memory_that_it_became() -> None:
    memory = UUID(int=7)
    one = held(("user", "Open it."), ("assistant", "Opened."), of=(memory,))
    late = held(("assistant", "Anything else?"), start=3)
    other = held(("user", "Next."), start=4)
    left = forgetting([*one, *late, *other], {memory})
    assert [(m.number, m.message.content, m.of) for m in left] == [
        (1, "", ()),
        (2, "", ()),
        (3, "", ()),
        (4, "Next.", ()),
    ]
    assert forgetting([*one, *late, *other], {UUID(int=8)}) == [*one, *late, *other]


def test_a_message_without_letters_is_not_lost() -> None:
    assert planned(held(("user", "👍"))).touched == frozenset()


def test_a_failed_call_takes_its_turn_and_leaves_the_earlier_ones() -> None:
    messages = held(("user", "One?"), ("assistant", "1"), ("user", "Run."), ("tool", "Error: disk full"))
    plan = planned(messages, [3, 4])
    assert (plan.drops, plan.waiting, plan.triggers) == ({3, 4}, 1, ("tool_error",))


def test_only_what_is_new_fires() -> None:
    messages = held(("user", "Run."), ("tool", "Error: disk full"), ("assistant", "Again?"))
    assert planned(messages, [3]).triggers == ()
    assert planned(messages, [2, 3]).triggers == ("tool_error",)


def test_an_answer_without_its_question_does_not_count() -> None:
    messages = held(("assistant", "late"), *((("user", "Q?")) for _ in range(4)))
    assert planned(messages).triggers == ()
    assert planned(messages).waiting == 4
    more = held(("assistant", "late"), *((("user", "Q?")) for _ in range(5)))
    plan = planned(more)
    assert (plan.triggers, plan.drops, plan.waiting) == (("turn_count",), {1, 2, 3, 4, 5, 6}, 0)


def test_the_end_of_a_task_takes_only_its_own_turns() -> None:
    messages = [*held(("user", "A?"), task_id="a"), *held(("user", "B?"), start=2, task_id="b")]
    plan = planned(messages, [], ended="a")
    assert (plan.triggers, plan.drops, plan.waiting) == (("task_end",), {1}, 1)
    assert [one.task_id for one in plan.drafts] == ["a"]


def test_an_overfull_buffer_is_written_at_once() -> None:
    plan = planned(held(("user", "A?"), ("user", "B?")), [], overfull=True)
    assert (plan.triggers, plan.drops, plan.waiting) == (("turn_count",), {1, 2}, 0)


def test_more_than_one_memory_holds_becomes_several_and_loses_no_turn() -> None:
    messages = held(*((("user", f"Question {n}: " + "w " * 500)) for n in range(30)))
    plan = planned(messages, [], overfull=True)
    assert 4 <= len(plan.drafts) <= 8
    text = "\n".join(draft.content for draft in plan.drafts)
    assert [text.count(f"Question {n}: ") for n in range(30)] == [1] * 30
    assert all(len(draft.content) <= trigger_rules().draft_chars_max for draft in plan.drafts)


def test_the_state_of_a_living_task_is_a_note_and_the_turn_waits() -> None:
    messages = held(("user", "Step 2 of 4 is done."), task_id="t")
    living, gone = planned(messages, living=frozenset({"t"})), planned(messages)
    assert (living.drafts, [n.text for n in living.notes["t"]], living.waiting) == ((), ["Step 2 of 4 is done."], 1)
    assert ([d.kind for d in gone.drafts], gone.notes, gone.waiting) == (["episodic"], {}, 0)


@pytest.mark.parametrize(
    ("content", "sentences", "spans"),
    [
        ("a. b. c.", ["b."], ((3, 5),)),
        ("I don’t like it. x", ["I don't like it."], ((0, 16),)),
        ("something else", ["not there"], ((0, 14),)),
    ],
)
def test_sentences_are_found_where_they_stand(content: str, sentences: list[str], spans: Any) -> None:
    assert spans_of(content, sentences) == spans


def test_parts_are_taken_out_once() -> None:
    assert merged_spans([(5, 9), (0, 3), (2, 6)]) == ((0, 9),)
    assert without("a. b. c.", ((3, 5),)) == "a. c."
    assert without("a", ()) == "a"


def test_a_message_survives_the_buffer() -> None:
    (one,) = held(
        ("user", "你好 “x” \U0001f600"), task_id="t", agent_id="a", tool_status="error", cut=True, of=(UUID(int=5),)
    )
    assert held_of(1, payload_of(one)) == one
