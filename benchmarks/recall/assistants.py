"""What do BEAM and MemDaily say, in the form in which their authors publish them?

BEAM (mohammadtavakoli78/BEAM): `chats/100K` with a folder a chat, in it chat.json and probing_questions/probing_questions.json.
MemDaily (nuster1128/MemSim): `data_generation/final_dataset/messages_and_QAs` with 26 files of Chinese trajectories.  Their
noise is a JSON list of texts, `noise_pool.json` beside them; any such list does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.recall.cases import USER, BadSet, Case, files, read_json

PLAN_MARK = re.compile(r"\s*->->[\s\d,.]*$")  # where the authors' plan had the message; nobody said it
ABSTENTION = "abstention"  # asks for what was never said
NOISE = "noise_pool.json"
SEED = 5


def beam(data: Path, roles: str) -> list[Case]:
    """One case a chat.  `roles` "user" keeps only what the user said, and the questions that this answers."""
    return [_chat(path.parent.name, read_json(path), path.parent, roles) for path in _chats(data)]


def _chats(data: Path) -> list[Path]:
    found = list(data.glob("*/chat.json*"))
    if not found:
        raise BadSet(f"no */chat.json in {data}")
    return sorted(found, key=lambda path: ([int(n) for n in re.findall(r"\d+", path.parent.name)], path.parent.name))


def _chat(name: str, batches: list[Mapping[str, Any]], folder: Path, roles: str) -> Case:
    case, day = Case(f"beam-{name}"), None
    for batch in batches:
        for message in (message for turn in batch["turns"] for message in turn):
            if message.get("time_anchor"):  # stands at the first message of a batch
                day = datetime.strptime(message["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
            if day is None:
                raise BadSet(f"{folder}: the first message has no time_anchor")
            role = message["role"]
            if roles in ("all", role):
                text = PLAN_MARK.sub("", message["content"])
                speaker, at = role.title(), day + timedelta(seconds=len(case.turns))
                said = f"{speaker}: {text}"
                case.say(str(message["id"]), said, at, f"{case.user}-{batch['batch_number']}", speaker, role)
    (path,) = files(folder / "probing_questions", "probing_questions.json*")
    for ability, questions in read_json(path).items():
        for question in questions if ability != ABSTENTION else ():
            case.ask(question["question"], ability, set(_ids(question.get("source_chat_ids", ()))))
    return case


def _ids(told: Any) -> Iterator[str]:
    """Message ids from a list, a table of lists or one alone."""
    if isinstance(told, Mapping):
        told = list(told.values())
    if isinstance(told, list | tuple):
        for one in told:
            yield from _ids(one)
    elif told is not None:
        yield str(told)


def memdaily(data: Path, noise: int) -> list[Case]:
    """One small user a trajectory, in a shuffled order, so that the first so many hold every kind.

    `noise`: so many lines of unrelated chat are added to each, after its first message.
    """
    lines = _noise(data, noise)
    cases = []
    for path in files(data, "[0-9]*.json*"):
        name = path.name.partition(".")[0]
        kind = "_".join(name.split("_")[1:-1])  # "05_post_processing_events": the rest is the domain
        for told in read_json(path):
            case = Case(f"{name}-{told['tid']}")
            said = [(_minute(m["time"], m["mid"]), str(m["mid"]), m["message"]) for m in told["message_list"]]
            first = said[0][0]
            drawn = random.Random(f"{SEED} {case.user}").sample(lines, noise)
            said += [(first + timedelta(seconds=i + 1), f"{NOISE}-{i}", line) for i, line in enumerate(drawn)]
            for at, ref, text in sorted(said):
                case.say(ref, text, at, f"{case.user}-{at:%m%d}", USER, USER)
            for question in told["question_list"]:
                case.ask(question["question"], kind, {str(mid) for mid in question["target_step_id"]})
            cases.append(case)
    random.Random(SEED).shuffle(cases)
    return cases


def _noise(data: Path, wanted: int) -> list[str]:
    if not wanted:
        return []
    lines: list[str] = read_json(data / NOISE)
    if len(lines) < wanted:
        raise BadSet(f"{data / NOISE} has {len(lines)} lines, {wanted} are wanted")
    return lines


def _minute(text: str, position: int) -> datetime:
    """Of "2024年04月01日 周一 08:30"; milliseconds keep messages of one minute in their order."""
    year, month, day, hour, minute = (int(number) for number in re.findall(r"\d+", text)[:5])
    return datetime(year, month, day, hour, minute, 0, 1000 * position, UTC)
