"""What came out?  Sums and means of runs, and the table of docs/BENCHMARKS.md.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.loop.agent import Run
from benchmarks.loop.tasks import FAMILIES

BARS = {"steps": -0.30, "failed_retries": -0.70, "retries": -0.70, "made_worse": 0}


@dataclass(frozen=True, slots=True)
class Pair:
    """The same task without and with memory."""

    off: Run
    on: Run

    @property
    def worse(self) -> bool:
        """More steps for the same outcome, or a success that became a failure."""
        if self.off.succeeded != self.on.succeeded:
            return self.off.succeeded
        return len(self.on.steps) > len(self.off.steps)

    @property
    def worse_subgoals(self) -> int:
        """Parts of the task, reached in both, in which more calls failed with memory: wrong advice, even where the whole gained."""
        off, on = (Counter(step.mine for step in run.steps if step.error) for run in (self.off, self.on))
        reached = {step.mine for step in self.off.steps} & {step.mine for step in self.on.steps}
        return sum(on[number] > off[number] for number in reached)


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """By family and in all: means per task off and on, and the change."""
    groups = {name: [pair for pair in pairs if pair.off.task.family == name] for name in FAMILIES}
    return {name: _of_group(group) for name, group in {**groups, "all": list(pairs)}.items() if group}


def _of_group(pairs: Sequence[Pair]) -> dict[str, Any]:
    told: dict[str, Any] = {"tasks": len(pairs)}
    for name in ("steps", "failed_calls", "retries", "failed_retries"):
        off, on = (fmean(_count(run, name) for run in runs) for runs in _sides(pairs))
        told[name] = {"off": round(off, 2), "on": round(on, 2), "change": round(on / off - 1, 3) if off else 0.0}
    told["failed_tasks"] = {
        "off": sum(not p.off.succeeded for p in pairs),
        "on": sum(not p.on.succeeded for p in pairs),
    }
    told["made_worse"] = sorted(pair.off.task.id for pair in pairs if pair.worse)
    told["subgoals_made_worse"] = sum(pair.worse_subgoals for pair in pairs)
    told["subgoals"] = sum(len(pair.off.task.subgoals) for pair in pairs)
    told["made_better"] = sum(len(p.on.steps) < len(p.off.steps) or p.on.succeeded > p.off.succeeded for p in pairs)
    told["tokens_per_task"] = round(fmean(pair.on.tokens for pair in pairs))
    return told


def _sides(pairs: Sequence[Pair]) -> tuple[list[Run], list[Run]]:
    return [pair.off for pair in pairs], [pair.on for pair in pairs]


def _count(run: Run, name: str) -> int:
    counts = {
        "steps": len(run.steps),
        "failed_calls": run.failures,
        "retries": run.retries,
        "failed_retries": run.failed_retries,
    }
    return counts[name]


def by_kind(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    """Per kind of subgoal how often it came and how many calls failed in it, off and on; kinds without failures are left out."""
    met: Counter[str] = Counter()
    failed: dict[str, Counter[str]] = {"off": Counter(), "on": Counter()}
    for pair in pairs:
        met.update(pair.off.task.kinds)
        for side, run in (("off", pair.off), ("on", pair.on)):
            failed[side].update(pair.off.task.kinds[step.mine] for step in run.steps if step.error)
    return {
        kind: {"met": met[kind], "off": failed["off"][kind], "on": failed["on"][kind]}
        for kind in sorted(met)
        if failed["off"][kind] or failed["on"][kind]
    }


def table(groups: Mapping[str, Any]) -> list[str]:
    """Markdown; means per task, memory off → on."""
    heads = "family|tasks|steps|retries|failed retries|failed calls|failed tasks|tasks made worse|subgoals made worse|tokens injected"
    cells = heads.split("|")
    lines = [f"| {' | '.join(cells)} |", "|---" * len(cells) + "|"]
    for name, group in groups.items():
        cells = [name, str(group["tasks"])]
        cells += [_change(group[key]) for key in ("steps", "retries", "failed_retries", "failed_calls")]
        cells += [f"{group['failed_tasks']['off']} → {group['failed_tasks']['on']}", str(len(group["made_worse"]))]
        cells += [f"{group['subgoals_made_worse']} of {group['subgoals']}", str(group["tokens_per_task"])]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _change(told: Mapping[str, float]) -> str:
    return f"{told['off']:.1f} → {told['on']:.1f} ({100 * told['change']:+.0f} %)"


def missed(groups: Mapping[str, Any]) -> list[str]:
    """Bars of the issue that were not reached, in words."""
    whole = groups["all"]
    found = [
        f"{name} {whole[name]['change']:+.0%}, wanted {BARS[name]:+.0%}"
        for name in ("steps", "retries")
        if whole[name]["change"] > BARS[name]
    ]
    return found + ([f"{len(whole['made_worse'])} tasks made worse"] if whole["made_worse"] else [])
