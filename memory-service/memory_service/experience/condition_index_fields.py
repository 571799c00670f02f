"""Which fields that lessons ask about does a state have?

A tree of the fields' names, walked together with the state, so that the cost follows the smaller of the two and a deep or
huge state costs nothing that no lesson asks about.  The answer must be that of `matching.lookup` for every field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from memory_service.experience.conditions import LIST_INDEX
from memory_service.experience.matching import lookup, step

END = ""  # no name is empty, so this key can hold the whole path


class FieldTree:
    def __init__(self) -> None:
        self._root: dict[str, Any] = {}
        self._dotted: set[str] = set()

    def add(self, path: str) -> None:
        node = self._root
        for name in path.split("."):
            node = node.setdefault(name, {})
        node[END] = path
        if "." in path:
            self._dotted.add(path)

    def remove(self, path: str) -> None:
        self._dotted.discard(path)
        names = path.split(".")
        nodes = [self._root]
        for name in names:
            nodes.append(nodes[-1][name])
        del nodes[-1][END]
        for parent, name, node in zip(reversed(nodes[:-1]), reversed(names), reversed(nodes[1:]), strict=True):
            if not node:
                del parent[name]

    def present(self, state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """(path, value) of each known field that the state has, once each."""
        whole = {path: found for path in state if path in self._dotted and (found := lookup(state, path)) is not None}
        yield from whole.items()
        waiting: list[tuple[dict[str, Any], Any]] = [(self._root, state)]
        while waiting:
            node, value = waiting.pop()
            for name in _shared_names(node, value):
                child, inner = node[name], step(value, name)
                if inner is None:
                    continue
                path = child.get(END)
                if path is not None and path not in whole and (found := lookup(state, path)) is not None:
                    yield path, found
                if len(child) > (path is not None):
                    waiting.append((child, inner))


def _shared_names(node: dict[str, Any], value: Any) -> list[str]:
    """Names below the node that the value may have, found by going through the shorter side."""
    if isinstance(value, Mapping):
        shorter, longer = (node, value) if len(node) <= len(value) else (value, node)
        return [name for name in shorter if name != END and name in longer]
    if isinstance(value, list):
        if len(node) <= len(value):
            return [name for name in node if LIST_INDEX.fullmatch(name)]
        return [str(position) for position in range(len(value)) if str(position) in node]
    return []
