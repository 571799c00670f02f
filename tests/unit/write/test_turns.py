"""Does each part of a turn land where it belongs, merged per task?"""

from datetime import timedelta

import pytest

from memory_service.write.triggers import BufferState, Message, Turn, should_write
from memory_service.write.turns import Note, Routed, cut_middle, merge_drafts, route_turn, turns_of
from tests.unit.write.turn_factories import NOW, draft, scope, trigger_rules, turn


def routed(one: Turn, earlier: tuple[Turn, ...] = (), task_id: str | None = None, **buffer: object) -> Routed:
    rules = trigger_rules()
    state = BufferState(**{"turns_since_write": len(earlier), **buffer})  # type: ignore[arg-type]
    return route_turn(one, should_write(one, state, rules), earlier, scope(task_id=task_id), rules)


def test_a_turn_is_a_user_message_and_what_answers_it() -> None:
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "user", "assistant"]
    messages = [Message(role, str(n)) for n, role in enumerate(roles)]  # type: ignore[arg-type]
    turns = turns_of(messages, "error")
    assert [[m.content for m in one.messages] for one in turns] == [["0", "1", "2", "3", "4"], ["5"], ["6", "7"]]
    assert [one.last_tool_status for one in turns] == [None, None, "error"]


def test_an_answer_without_its_question_is_a_turn_too() -> None:
    assert [len(one.messages) for one in turns_of([Message("assistant", "a"), Message("user", "b")])] == [1, 1]
    assert turns_of([]) == []


def test_nothing_fired_means_nothing_is_written() -> None:
    assert routed(turn(("user", "And the next one?"))) == Routed((), ())


def test_a_preference_becomes_a_semantic_memory_of_its_sentence_alone() -> None:
    (one,) = routed(turn(("user", "Open the file. I prefer tables. Thanks!"), ("assistant", "Opened."))).drafts
    assert (one.kind, one.content, one.metadata) == ("semantic", "I prefer tables.", {"triggers": ["preference"]})
    assert (one.user_id, one.session_id, one.occurred_at) == ("u", "s", NOW)


@pytest.mark.parametrize(
    "text", ["Could you always answer in German?", "以后能不能简短一点？", "Don't ever push to main directly."]
)
def test_a_wish_is_an_instruction_also_when_it_is_put_as_a_question(text: str) -> None:
    (one,) = routed(turn(("user", text))).drafts
    assert (one.kind, one.category, one.event_type) == ("semantic", "instruction", "instruction")
    assert one.importance is not None
    assert one.importance >= 0.7


def test_two_preferences_of_a_turn_are_two_memories() -> None:
    drafts = routed(turn(("user", "我喜欢深色主题。以后请用中文回答。"))).drafts
    assert [one.content for one in drafts] == ["我喜欢深色主题。", "以后请用中文回答。"]


def test_a_correction_leaves_its_kind_to_the_summariser() -> None:
    (one,) = routed(turn(("user", "No, the port is 5433, not 5432."))).drafts
    assert (one.kind, one.metadata) == ("auto", {"triggers": ["correction"]})


def test_a_failed_tool_call_is_an_episode_with_its_outcome_and_a_failure_of_the_task() -> None:
    one = Turn((Message("user", "Start it."), Message("tool", "Error: port 80 is taken", name="run")))
    without, within = routed(one), routed(one, task_id="t")
    assert [(d.kind, d.outcome, d.content) for d in without.drafts] == [
        ("episodic", "failure", "user: Start it.\ntool run: Error: port 80 is taken")
    ]
    assert without.notes == ()
    assert within.notes == (Note("failure", "run", "Error: port 80 is taken"),)
    assert within.drafts[0].task_id == "t"


def test_the_current_state_goes_to_the_tasks_working_memory_or_without_a_task_to_an_episode() -> None:
    one = turn(("user", "go"), ("assistant", "Step 2 of 5 is done. Next comes the index."))
    assert routed(one, task_id="t") == Routed((), (Note("step", "Step 2 of 5 is done."),))
    assert [(d.kind, d.metadata) for d in routed(one).drafts] == [("episodic", {"triggers": ["state_change"]})]


def test_the_fifth_turn_writes_the_turns_that_waited() -> None:
    earlier = tuple(turn(("user", f"question {n}"), ("assistant", f"answer {n}")) for n in range(4))
    (one,) = routed(turn(("user", "question 4")), earlier).drafts
    assert one.content.split("\n")[0] == "user: question 0"
    assert one.content.split("\n")[-1] == "user: question 4"
    assert one.metadata == {"triggers": ["turn_count"]}


def test_system_prompts_and_empty_messages_are_not_remembered() -> None:
    (one,) = routed(turn(("system", "You are a bot."), ("user", "  "), ("user", "That's all."))).drafts
    assert one.content == "user: That's all."


def test_the_time_of_a_memory_is_that_of_its_first_message() -> None:
    early = NOW - timedelta(hours=2)
    one = Turn((Message("user", "I prefer tables.", at=early), Message("assistant", "ok", at=NOW)))
    assert routed(one).drafts[0].occurred_at == early


def test_a_very_long_turn_is_cut_in_its_middle() -> None:
    (one,) = routed(turn(*[("assistant", "word " * 2_000)] * 30, ("tool", "error: disk full"))).drafts
    assert len(one.content) <= trigger_rules().draft_chars_max
    assert one.content.endswith("tool: error: disk full")


def test_what_happened_in_one_task_is_merged_into_one_memory() -> None:
    first = draft("A failed", outcome="failure", tags=("x",), occurred_at=NOW, importance=0.4)
    second = draft(
        "B worked", outcome="success", tags=("x", "y"), occurred_at=NOW - timedelta(hours=1), importance=0.7,
        metadata={"triggers": ["tool_result", "tool_error"]},
    )  # fmt: skip
    (one,) = merge_drafts([first, second], 1_000)
    assert one.content == "A failed\n\nB worked"
    assert (one.outcome, one.tags, one.importance) == ("detour", ("x", "y"), 0.7)
    assert one.occurred_at == NOW - timedelta(hours=1)
    assert one.metadata == {"triggers": ["tool_error", "tool_result"]}


def test_the_same_outcome_twice_stays_that_outcome() -> None:
    (one,) = merge_drafts([draft("A", outcome="failure"), draft("B"), draft("C", outcome="failure")], 1_000)
    assert one.outcome == "failure"


def test_other_tasks_sessions_users_and_agents_are_not_merged() -> None:
    drafts = [
        draft("A"),
        draft("B", task_id="t2"),
        draft("C", session_id="s2"),
        draft("D", user_id="u2"),
        draft("E", agent_id="a"),
    ]
    assert merge_drafts(drafts, 1_000) == drafts


def test_a_text_that_another_contains_is_not_repeated() -> None:
    (one,) = merge_drafts([draft("B"), draft("A B C"), draft("B")], 1_000)
    assert one.content == "A B C"


def test_statements_stay_apart_and_the_same_one_twice_is_one() -> None:
    drafts = [
        draft("I prefer tables.", kind="semantic", metadata={"triggers": ["preference"]}),
        draft("I hate tabs.", kind="semantic"),
        draft("i  prefer TABLES.", kind="semantic", metadata={"triggers": ["correction"]}),
    ]
    first, second = merge_drafts(drafts, 1_000)
    assert (first.content, first.metadata) == ("I prefer tables.", {"triggers": ["preference", "correction"]})
    assert second.content == "I hate tabs."


def test_a_merged_memory_is_bounded() -> None:
    (one,) = merge_drafts([draft("a" * 900), draft("b" * 900)], 1_000)
    assert len(one.content) <= 1_000
    assert one.content.startswith("aaa")
    assert one.content.endswith("bbb")


def test_merging_nothing_gives_nothing() -> None:
    assert merge_drafts([], 1_000) == []


def test_a_cut_keeps_both_ends_within_the_bound() -> None:
    for chars in range(60):
        assert len(cut_middle("x" * 100, max(chars, 3))) <= max(chars, 3)
    assert cut_middle("short", 5) == "short"
