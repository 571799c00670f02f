"""Does the benchmark of recall read the sets as their authors publish them?"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recall import sets
from benchmarks.recall.cases import BadSet, Case, own
from benchmarks.recall.sets import Chosen, cases_of, parsed

EXAMPLE = Path(sets.__file__).with_name("example.jsonl")


def write(path: Path, told: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")
    return path


def said(case: Case) -> list[tuple[str, str]]:
    return [(turn.ref, turn.content) for turn in case.turns]


def test_locomo_is_read_with_dates_captions_and_labels_as_they_were_typed(tmp_path: Path):
    talk = {
        "session_2_date_time": "9:05 am on 3 July, 2031",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "A kite."}],
        "session_1_date_time": "1:56 pm on 8 May, 2031",
        "session_1": [
            {"speaker": "Al", "dia_id": "D1:1", "text": "What is it?"},
            {"speaker": "Bo", "dia_id": "D1:02", "text": "Look!", "blip_caption": "a red kite"},
            {"speaker": "Al", "dia_id": "D1:3", "text": "Nice."},
        ],
    }
    asked = [
        {"question": "a", "category": 1, "evidence": ["D1:1; D2:01", "D:9:9"]},
        {"question": "b", "category": 4, "evidence": ["D1:1-D1:3"]},
        {"question": "c", "category": 5, "evidence": ["D1:1"]},
        {"question": "d", "category": 2, "evidence": []},
        {"question": "e", "category": 3, "evidence": ["D1:2-D1:3"]},
        {"question": "f", "category": 3, "evidence": ["D1:2 - D2:9"]},
    ]
    path = write(tmp_path / "locomo10.json", [{"sample_id": "c1", "conversation": talk, "qa": asked}])
    [case] = cases_of(Chosen("locomo", path))
    assert said(case)[1] == ("D1:2", "Bo: Look! [shares image: a red kite]")
    assert [turn.ref for turn in case.turns] == ["D1:1", "D1:2", "D1:3", "D2:1"]
    assert case.turns[0].occurred_at == datetime(2031, 5, 8, 13, 56, tzinfo=UTC)
    assert [(q.query, q.category, q.evidence) for q in case.questions] == [
        ("a", "multi-hop", {"D1:1", "D2:1"}),
        ("b", "single-hop", {"D1:1", "D1:2", "D1:3"}),
        ("e", "open-domain", {"D1:2", "D1:3"}),
        ("f", "open-domain", {"D1:2"}),  # no range over sessions
    ]
    assert case.unscored == 1
    assert case.before()["D1:2"].ref == "D1:1"
    assert "D2:1" not in case.before()


def test_realtalk_is_read_with_its_clock_and_without_photos_that_nobody_described(tmp_path: Path):
    turns = [
        {"speaker": "Al", "dia_id": "D1:1", "clean_text": "Hm.", "date_time": "29.12.2031, 22:42:04"},
        {"speaker": "Bo", "dia_id": "D1:2", "clean_text": "", "date_time": "29.12.2031, 22:42:04"},
    ]
    asked = [
        {"question": "a", "category": 3, "evidence": ["D1:1", "D1:2"]},
        {"question": "b", "category": 3, "evidence": ["D1:2"]},
    ]
    write(tmp_path / "Chat_1_Al_Bo.json", {"session_1": turns, "qa": asked})
    [case] = cases_of(Chosen("realtalk", tmp_path))
    assert said(case) == [("D1:1", "Al: Hm.")]
    assert case.turns[0].occurred_at == datetime(2031, 12, 29, 22, 42, 4, tzinfo=UTC)
    assert [q.evidence for q in case.questions] == [{"D1:1"}]
    assert case.unscored == 1


def beam_chat(folder: Path) -> None:
    first = [
        {"role": "user", "id": 0, "time_anchor": "March-15-2031", "content": "Plan my week. ->-> 1,1"},
        {"role": "assistant", "id": 1, "content": "Gladly."},
    ]
    batches = [
        {"batch_number": 1, "turns": [first, [{"role": "user", "id": 2, "content": "I moved to Bern."}]]},
        {"batch_number": 2, "turns": [[{"role": "user", "id": 3, "time_anchor": "April-02-2031", "content": "Hi"}]]},
    ]
    asked = {
        "abstention": [{"question": "x"}],
        "knowledge_update": [{"question": "Where?", "source_chat_ids": {"old": [2], "new": [3]}}],
        "extraction": [{"question": "Who?", "source_chat_ids": [1]}],
    }
    write(folder / "7" / "chat.json", batches)
    write(folder / "7" / "probing_questions" / "probing_questions.json", asked)


def test_beam_is_read_with_both_roles_or_the_user_alone(tmp_path: Path):
    beam_chat(tmp_path)
    [case] = cases_of(Chosen("beam", tmp_path))
    assert said(case)[:2] == [("0", "User: Plan my week."), ("1", "Assistant: Gladly.")]
    assert [turn.role for turn in case.turns] == ["user", "assistant", "user", "user"]
    assert [turn.occurred_at.day for turn in case.turns] == [15, 15, 15, 2]
    assert {q.category: q.evidence for q in case.questions} == {"knowledge_update": {"2", "3"}, "extraction": {"1"}}
    [alone] = cases_of(Chosen("beam", tmp_path, roles="user"))
    assert [turn.ref for turn in alone.turns] == ["0", "2", "3"]
    assert (len(alone.questions), alone.unscored) == (1, 1)


def test_memdaily_is_read_with_as_much_noise_as_is_wanted_and_the_same_each_time(tmp_path: Path):
    messages = [
        {"mid": 0, "message": "我叫石头。", "time": "2031年04月01日 周二 08:30"},
        {"mid": 1, "message": "我住在兰州。", "time": "2031年04月03日 周四 07:04"},
    ]
    told = [{"tid": 4, "message_list": messages, "question_list": [{"question": "住哪？", "target_step_id": [1]}]}]
    write(tmp_path / "05_post_processing_roles.json", told)
    write(tmp_path / "noise_pool.json", ["今天天气不错。", "随便聊聊。", "哈哈。"])
    [plain] = cases_of(Chosen("memdaily", tmp_path))
    assert [turn.ref for turn in plain.turns] == ["0", "1"]
    assert plain.questions[0].category == "post_processing"
    [noisy] = cases_of(Chosen("memdaily", tmp_path, noise=2))
    assert len(noisy.turns) == 4
    assert noisy.turns == cases_of(Chosen("memdaily", tmp_path, noise=2))[0].turns
    assert noisy.turns == sorted(noisy.turns, key=lambda turn: turn.occurred_at)
    with pytest.raises(BadSet, match="3 lines, 9 are wanted"):
        cases_of(Chosen("memdaily", tmp_path, noise=9))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"user": "a", "turns": [], "questions": [{"query": "q", "evidence": ["1"]}]}', r"own.jsonl:2.*nobody said"),
        ('{"user": "a", "questions": []}', r"own.jsonl:2.*turns"),
        ("{", r"own.jsonl:2"),
    ],
)
def test_a_line_of_an_own_set_that_is_wrong_is_named(tmp_path: Path, line: str, complaint: str):
    path = tmp_path / "own.jsonl"
    path.write_text("\n" + line, encoding="utf-8")
    with pytest.raises(BadSet, match=complaint):
        own(path)


def test_turns_of_an_own_set_are_put_into_the_order_of_time(tmp_path: Path):
    turns = [
        {"ref": "b", "content": "later", "occurred_at": "2031-01-01T08:00:00"},
        {"ref": "a", "content": "first", "occurred_at": "2031-01-01T08:00:00+02:00"},
    ]
    asked = [{"query": "q", "evidence": ["a"]}]
    [case] = own(write(tmp_path / "own.jsonl", {"user": "a", "turns": turns, "questions": asked}))
    assert [turn.ref for turn in case.turns] == ["a", "b"]


def test_a_set_is_chosen_by_name_path_and_options():
    assert parsed("beam=a/b,roles=user,limit=3") == Chosen("beam", Path("a/b"), roles="user", limit=3)
    assert parsed("memdaily=x,noise=100").called == "memdaily + 100 noise lines"
    for wrong in ("nothing=x", "beam=", "beam=x,role=user", "beam=x,limit=few"):
        with pytest.raises(BadSet):
            parsed(wrong)
    with pytest.raises(BadSet, match="only memdaily"):
        cases_of(Chosen("own", EXAMPLE, noise=1))
