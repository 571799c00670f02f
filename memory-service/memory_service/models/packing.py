"""Which texts run together, so that little is computed for padding?  Pure."""

from collections.abc import Sequence


def packed(lengths: Sequence[int], padded_tokens_max: int, length_ratio_max: float) -> list[list[int]]:
    """Groups of row numbers that cover every row once, shortest texts first.

    A group's longest text times its rows stays within `padded_tokens_max` (a single longer text is its own group), and its
    longest is at most `length_ratio_max` times its shortest.
    """
    groups: list[list[int]] = []
    shortest = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[row]
        if not groups or (len(groups[-1]) + 1) * length > padded_tokens_max or length > shortest * length_ratio_max:
            groups.append([])
            shortest = length
        groups[-1].append(row)
    return groups
