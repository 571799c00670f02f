"""Do turns that a person would write down fire, and no others?"""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from memory_service.errors import SetupRefused
from memory_service.write.triggers import TRIGGERS, BufferState, Role, load_trigger_rules, should_write
from tests.unit.write.factories import CONFIG, labelled, shipped_rules
from tests.unit.write.turn_factories import fired, trigger_rules, turn

LINES = labelled("labelled_turns")


def as_labelled(line: dict[str, Any]) -> bool:
    return fired(turn((line["role"], line["content"]))) == sorted(line["triggers"], key=TRIGGERS.index)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line", [one for one in LINES if one["part"] != "held_out"], ids=lambda one: one["content"][:40]
)
def test_a_labelled_turn_fires_as_labelled(line: dict[str, Any]) -> None:
    assert as_labelled(line)


# Each held-out part was written before its phrases existed and measured once: first 23 of 44 right, second 44 of 60, then 30 of
# 40.  The first two were tuned on afterwards and are tested line by line above; `held_out` never was.  Its misses are turns
# that wait for the count of five.  `negations` (denials, quotations, questions, and their opposites) came in three batches, each
# measured once before it was mended: 38 of 44, 18 of 22, 11 of 12, with 2, 3 and 1 false; one line is still missed and left out.
# `wishes` (imperatives, polite questions, vital facts, and what only looks like them): 62 lines, 28 right before; 43 more, measured
# once before they were mended: 31 right, 4 false; one of these is still missed and left out, and one that says "don't forget".
# `wishes_held_out`, 25 lines by the same author, was never mended for: 25.
def test_accuracy_on_turns_that_the_phrases_were_not_tuned_on_does_not_fall() -> None:
    lines = [one for one in LINES if one["part"] == "held_out"]
    assert len(lines) == 40
    assert sum(map(as_labelled, lines)) >= 30
    assert not [one for one in lines if set(fired(turn((one["role"], one["content"])))) - set(one["triggers"])]


def test_the_labelled_turns_are_half_chinese_or_nearly() -> None:
    chinese = sum(any("\u4e00" <= char <= "\u9fff" for char in one["content"]) for one in LINES)
    assert len(LINES) >= 60
    assert 0.4 <= chinese / len(LINES) <= 0.6


def test_every_fifth_turn_is_written() -> None:
    plain = turn(("user", "And the next one?"), ("assistant", "Here it is."))
    assert [fired(plain, turns_since_write=n) for n in range(6)] == [[], [], [], [], ["turn_count"], ["turn_count"]]


def test_what_the_buffer_knows_of_the_task_fires_too() -> None:
    plain = turn(("user", "Go on."))
    assert fired(plain, task_changed=True) == ["state_change"]
    assert fired(plain, task_ended=True) == ["task_end"]


def test_triggers_come_in_a_fixed_order_each_once() -> None:
    one = turn(
        ("user", "That's all for today. From now on answer in German. I prefer tables."),
        ("tool", "Error: connection refused"),
        ("assistant", "All steps are done."),
    )
    assert fired(one, turns_since_write=4, task_ended=True) == ["preference", "tool_error", "turn_count", "task_end"]


def test_a_trigger_names_the_message_and_its_sentences() -> None:
    (trigger,) = should_write(
        turn(("user", "Read the file. I prefer tables. Thanks!"), ("assistant", "Done.")),
        BufferState(),
        trigger_rules(),
    )
    assert (trigger.name, trigger.message, trigger.sentences) == ("preference", 0, ("I prefer tables.",))


@pytest.mark.parametrize("role", ["assistant", "tool", "system"])
def test_only_the_user_has_preferences_and_corrections(role: Role) -> None:
    assert fired(turn((role, "I prefer dark mode. No, the port is 5433, not 5432."))) == []


def test_the_callers_word_on_the_tool_counts_more_than_what_its_output_looks_like() -> None:
    log = ("tool", "ERROR: connection refused\nTraceback (most recent call last):")
    assert fired(turn(log)) == ["tool_error"]  # type: ignore[arg-type]
    assert fired(turn(log, last_tool_status="success")) == []  # type: ignore[arg-type]
    assert fired(turn(("tool", "214 passed"), last_tool_status="error")) == ["tool_error"]


def test_a_failed_tool_without_a_message_fires() -> None:
    assert fired(turn(("user", "Run it."), last_tool_status="error")) == ["tool_error"]


@pytest.mark.parametrize(
    "content",
    [
        'Rename this: "I prefer tabs. From now on answer in German."',
        "他写道：“以后请用中文回答。我喜欢深色主题。”",
        "「我讨厌加班」这个标题好吗？",
        "```\nI prefer tabs.\nFrom now on answer in German.\n```\nformat this",
        "~~~text\n任务完成，收工。\n",
        "> From now on answer in German.\n> 以后请用中文回答。\n\nReply to this mail.",
        "Use `I prefer tabs` as the title.",
        "Please answer this mail.",
    ],
)
def test_quotations_quoted_lines_and_code_do_not_fire(content: str) -> None:
    assert fired(turn(("user", content))) == []


def test_an_error_in_the_middle_of_long_data_is_data() -> None:
    rows = "\n".join(f"{n},ok,value {n}" for n in range(500))
    assert fired(turn(("tool", f"{rows}\n17,error: disk full,x\n{rows}"))) == []
    assert fired(turn(("tool", f"{rows}\nerror: disk full"))) == ["tool_error"]


def test_reading_a_turn_of_any_content_takes_time_in_proportion_to_its_length() -> None:
    chance = random.Random(1)
    pieces = [
        "if ",
        "not ",
        "I ",
        "prefer ",
        "如果",
        "我",
        "喜欢",
        '"',
        "“",
        "```\n",
        "> ",
        "the ",
        "wrong ",
        ". ",
        ", ",
        "。",
        "\n",
        "error ",
        "a" * 30,
    ]
    for text in (
        "".join(chance.choices(pieces, k=40_000)),
        "a" * 200_000,
        "I " * 100_000,
        '"' * 100_000,
        "```\n" * 30_000,
    ):
        started = time.perf_counter()
        for role in ("user", "tool", "assistant"):
            fired(turn((role, text)))  # type: ignore[arg-type]
        assert time.perf_counter() - started < 1.5


def test_of_a_turn_with_very_many_messages_the_first_and_last_are_read() -> None:
    middle = [("tool", "error: disk full")] * 200
    plain = [("assistant", "Looking.")] * 60
    assert fired(turn(*plain, *middle, *plain)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('name = "task_end"', 'name = "tsak_end"', "tsak_end"),
        ('name = "task_end"', 'name = "correction"', "each of"),
        ('roles = ["tool", "assistant"]', 'roles = ["robot"]', "roles"),
        ('event_types = ["correction"]', 'event_types = ["corection"]', "event_types"),
        ("weight_min = 2.0", 'weight_min = "2"', "weight_min"),
        ("turns_between_writes = 5", "turns_between_writes = 0", "turns_between_writes"),
        ("messages_max = 50", "messages_most = 50", "limits"),
        ('"no preference"', '"re:(", "no preference"', "bad pattern"),
    ],
)
def test_a_mistake_in_triggers_toml_is_named_at_start(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = (CONFIG / "triggers.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "triggers.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SetupRefused, match=named):
        load_trigger_rules(path, shipped_rules())


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "triggers.toml"
    for content in (b"[limits", b"\xff\xfe", b"x = 1"):
        path.write_bytes(content)
        with pytest.raises(SetupRefused, match=r"triggers\.toml"):
            load_trigger_rules(path, shipped_rules())
