"""How well do the rules tell contradictions and updates from statements that are both true?

    python benchmarks/conflicts.py [FILE]

Prints precision and recall over labelled pairs (benchmarks/conflict_pairs.jsonl: {label, old, new}; labels contradiction,
update, unrelated, specific) and every pair that was read wrongly.
"""

import sys
from collections import Counter
from pathlib import Path

import orjson

from memory_service.settings import Settings
from memory_service.write.conflict_rules import load_conflict_rules
from memory_service.write.conflicts import relation_of
from memory_service.write.contrasts import load_contrasts

FLAGGED = ("contradiction", "update")


def main(path: Path) -> None:
    folder = Settings().config_folder
    rules = load_conflict_rules(folder / "conflicts.toml", load_contrasts(folder / "contrasts.toml"))
    counts: Counter[tuple[str, str]] = Counter()
    for line in path.read_bytes().splitlines():
        pair = orjson.loads(line)
        verdict = relation_of(pair["new"], pair["old"], rules)
        said = verdict.relation if verdict else "none"
        counts[pair["label"], said] += 1
        right = said == pair["label"] or (said == "none" and pair["label"] not in FLAGGED)
        if not right:
            print(
                f"{pair['label']:>13} read as {said:<13} {pair['old']} → {pair['new']}  {verdict.reason if verdict else ''}"
            )
    print(f"\n{'label':>13} {'contradiction':>14} {'update':>8} {'none':>6}")
    for label in (*FLAGGED, "unrelated", "specific"):
        print(
            f"{label:>13} {counts[label, 'contradiction']:>14} {counts[label, 'update']:>8} {counts[label, 'none']:>6}"
        )
    flagged = sum(n for (_, said), n in counts.items() if said in FLAGGED)
    due = sum(n for (label, _), n in counts.items() if label in FLAGGED)
    touched = sum(n for (label, said), n in counts.items() if label in FLAGGED and said in FLAGGED)
    exact = sum(counts[label, label] for label in FLAGGED)
    print(
        f"\npairs {sum(counts.values())}; flagged at all: precision {touched / flagged:.3f}, recall {touched / due:.3f}"
    )
    print(f"with the right word: precision {exact / flagged:.3f}, recall {exact / due:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("conflict_pairs.jsonl"))
