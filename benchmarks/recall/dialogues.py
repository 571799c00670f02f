"""What do LoCoMo and REALTALK say, in the form in which their authors publish them?

LoCoMo (snap-research/locomo): one JSON file, a list of conversations.  REALTALK (danny911kr/REALTALK): a folder of
Chat_*.json, each a conversation with its questions.  Both number sessions `session_1`, `session_2` … and turns `D1:1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.recall.cases import USER, Case, files, read_json

# Category 5 of both asks for what was never said, so there is nothing to find.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
SESSION = re.compile(r"session_(\d+)")
# Labels were typed by hand: "D8:6; D9:17", "D30:05", "D:11:26" and "D12:3-D12:5" all occur.
TURN_ID = re.compile(r"D:?(\d+):(\d+)")
TURN_RANGE = re.compile(r"D:?(\d+):(\d+)\s*-\s*D:?(\d+):(\d+)")


def locomo(data: Path) -> list[Case]:
    """One case a conversation; turns of a session follow each other by a second, since only sessions are dated."""
    return [
        _dialogue(told["sample_id"], told["conversation"], told["qa"])
        for path in files(data, "locomo*.json*")
        for told in read_json(path)
    ]


def realtalk(data: Path) -> list[Case]:
    """One case a chat; the times are the real ones."""
    chats = {path.name.partition(".")[0]: read_json(path) for path in files(data, "Chat_*.json*")}
    return [_dialogue(name, chat, chat["qa"]) for name, chat in chats.items()]


def _dialogue(user: str, chat: Mapping[str, Any], asked: Iterable[Mapping[str, Any]]) -> Case:
    case = Case(user)
    for number, turns in _sessions(chat):
        day = chat.get(f"session_{number}_date_time")
        for position, turn in enumerate(turns):
            text = turn.get("clean_text") or turn.get("text") or ""
            caption = f" [shares image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            said = f"{turn['speaker']}: {text}{caption}" if (text + caption).strip() else ""
            at = _at(turn, day, position)
            case.say(_turn_id(turn["dia_id"]), said, at, f"{user}-{number}", turn["speaker"], USER)
    for question in asked:
        if question["category"] in CATEGORIES:
            case.ask(question["question"], CATEGORIES[question["category"]], _labels(question.get("evidence") or ()))
    return case


def _sessions(chat: Mapping[str, Any]) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    numbers = sorted(int(found[1]) for key in chat if (found := SESSION.fullmatch(key)))
    return ((number, chat[f"session_{number}"]) for number in numbers)


def _at(turn: Mapping[str, Any], day: str | None, position: int) -> datetime:
    """Milliseconds and seconds only keep turns of one time in their order."""
    if "date_time" in turn:
        at = datetime.strptime(turn["date_time"], "%d.%m.%Y, %H:%M:%S").replace(tzinfo=UTC)
        return at + timedelta(milliseconds=position)
    if day is None:
        raise KeyError("date_time")
    return datetime.strptime(day, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC) + timedelta(seconds=position)


def _turn_id(text: str) -> str:
    found = TURN_ID.fullmatch(text)
    return f"D{int(found[1])}:{int(found[2])}" if found else text


def _labels(texts: Iterable[str]) -> set[str]:
    """Turn ids, ranges spelled out."""
    found = set()
    for text in texts:
        found |= {_turn_id(one.group()) for one in TURN_ID.finditer(text)}
        for one in TURN_RANGE.finditer(text):
            if one[1] == one[3]:
                found |= {f"D{int(one[1])}:{number}" for number in range(int(one[2]), int(one[4]) + 1)}
    return found
