"""Which collections and aliases are there, and are they safe on disk? Owns the engine's shards and the catalog file.

One thread calls this module (the event loop's): the engine holds Python's lock for the whole of a call, so more
threads would add no speed, and one caller makes every operation atomic.

What is durable when: the engine writes every update to a write-ahead log before the call returns. Measured: kill -9
right after an acknowledged upsert loses nothing, since the log's pages belong to the kernel by then. A power cut may
lose what came after the last flush (every few seconds, and at stop), as with a Qdrant server's own defaults. A flush on
every `wait=true` would cost 6–13 ms against 0.1 ms for the update, so there is none.

No graph is built: the engine can do it only while the whole process stands still (measured: 4 s for 10,000 vectors of
384 dimensions, 37 s for 50,000), and a scan answers in 2 ms and 7 ms. Qdrant's server builds graphs in the background.
Reclaiming deleted points takes 0.2 s for 10,000 and is done only when a fifth of them is deleted and no write came for one flush interval;
under a load that never pauses, every `reclaim_s`: what is erased and written anew all the time would else grow without end.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import qdrant_edge as edge

from local_stack.home import write_private
from local_stack.limits import limit
from local_stack.qdrant.errors import BadRequest, Conflict, NotFound
from local_stack.qdrant.fields import Fields
from local_stack.qdrant.schema import VectorNames, configuration, engine_config, vector_names
from local_stack.qdrant.strict import refuse_unindexed

Json = dict[str, Any]
_FORMAT = 1
_NAME_MAX = 255
log = logging.getLogger("local_stack.qdrant")


@dataclass
class Collection:
    """One open shard. `folder` is its name on disk, independent of the collection's, which may hold any character."""

    name: str
    folder: str
    config: Json
    shard: edge.EdgeShard
    names: VectorNames
    operations: int = 0
    dirty: bool = False
    settled: bool = True
    reclaimed_at: float = field(default_factory=monotonic)
    indexed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.indexed = set(self.shard.info().payload_schema)

    def update(self, operation: edge.UpdateOperation) -> int:
        """Applies an update and returns its number."""
        self.dirty = True
        self.shard.update(operation)
        self.operations += 1
        return self.operations

    def allow(self, body: object, rule: str) -> None:
        """400 when strict mode refuses the filters of a request."""
        refuse_unindexed(self.config.get("strict_mode_config") or {}, self.indexed, body, rule)

    def flush(self) -> None:
        """Writes what is new to disk; when nothing is, or none such moment came for long, reclaims deleted points."""
        quiet = not self.dirty
        if self.dirty:
            self.shard.flush()
            self.dirty, self.settled = False, False
        if not self.settled and (quiet or monotonic() - self.reclaimed_at > limit("qdrant", "reclaim_s")):
            self.settled, self.reclaimed_at = True, monotonic()
            if self.shard.optimize():  # 0.05 ms when there is nothing to reclaim
                self.shard.flush()  # only now the old files go


class Collections:
    """All collections under one storage folder. Open it once per process; the engine locks each shard."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._open: dict[str, Collection] = {}
        self._aliases: dict[str, str] = {}
        (storage / "shards").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._load()

    @property
    def _catalog(self) -> Path:
        return self._storage / "catalog.json"

    def _load(self) -> None:
        folders = {path.name for path in (self._storage / "shards").iterdir()}
        if not self._catalog.exists():
            if folders:
                raise RuntimeError(
                    f"{self._catalog} is missing while there are shards: restore it, or empty {self._storage}"
                )
            self._save()
            return
        catalog = json.loads(self._catalog.read_text("utf-8"))
        if catalog.get("format") != _FORMAT:
            raise RuntimeError(f"{self._catalog} has format {catalog.get('format')}, this version reads {_FORMAT}")
        for name, kept in catalog["collections"].items():
            shard = edge.EdgeShard.load(str(self._storage / "shards" / kept["folder"]), engine_config(kept["config"]))
            names = vector_names(kept["config"])
            self._open[name] = Collection(name, kept["folder"], kept["config"], shard, names)
        self._aliases = dict(catalog["aliases"])
        for orphan in folders - {kept.folder for kept in self._open.values()}:
            log.warning("removing the shard %s: it was being created or deleted when the process ended", orphan)
            shutil.rmtree(self._storage / "shards" / orphan, ignore_errors=True)

    def _save(self) -> None:
        kept = {name: {"folder": found.folder, "config": found.config} for name, found in self._open.items()}
        document = {"format": _FORMAT, "collections": kept, "aliases": self._aliases}
        write_private(self._catalog, json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    def names(self) -> list[str]:
        return list(self._open)

    def aliases(self) -> Mapping[str, str]:
        """Alias → collection."""
        return self._aliases

    def exists(self, name: str) -> bool:
        return self._aliases.get(name, name) in self._open

    def get(self, name: str) -> Collection:
        """The collection of that name or alias, 404 when there is none."""
        found = self._open.get(self._aliases.get(name, name))
        if found is None:
            raise NotFound(f"Collection `{name}` doesn't exist!")
        return found

    def create(self, name: str, body: Fields) -> None:
        """Makes a collection. It is in the catalog only when its shard is complete on disk."""
        if name in self._open or name in self._aliases:
            raise Conflict(f"Collection `{name}` already exists!")
        if not name or len(name) > _NAME_MAX or "/" in name or "\0" in name:
            raise BadRequest(f"collection name must have 1 to {_NAME_MAX} characters and no slash")
        config = configuration(body)
        folder = uuid.uuid4().hex
        path = self._storage / "shards" / folder
        path.mkdir(mode=0o700)
        shard = edge.EdgeShard.create(str(path), engine_config(config))
        shard.flush()
        self._open[name] = Collection(name, folder, config, shard, vector_names(config))
        self._save()

    def update_config(self, name: str, changes: Mapping[str, Json | None]) -> None:
        """Merges new settings into the kept ones, key by key; None removes a section."""
        found = self.get(name)
        for section, values in changes.items():
            if values is None:
                found.config.pop(section, None)
            else:
                found.config[section] = {**found.config.get(section, {}), **values}
        self._save()

    def delete(self, name: str) -> bool:
        """Removes a collection and its aliases; False when there is none. An alias is no collection's name here."""
        found = self._open.pop(name, None)
        if found is None:
            return False
        self._aliases = {alias: target for alias, target in self._aliases.items() if target != name}
        self._save()
        found.shard.close()
        shutil.rmtree(self._storage / "shards" / found.folder, ignore_errors=True)
        return True

    def change_aliases(self, actions: list[Any]) -> None:
        """All actions or none, in order."""
        changed = dict(self._aliases)
        for action in actions:
            self._apply(Fields(action, "actions"), changed)
        previous, self._aliases = self._aliases, changed
        try:
            self._save()
        except OSError:
            self._aliases = previous
            raise

    def _apply(self, action: Fields, changed: dict[str, str]) -> None:
        kind = next(iter(action.names()), "")
        body = Fields(action.take(kind) or {}, kind or "action")
        if kind == "create_alias":
            target, alias = body.need_text("collection_name"), body.need_text("alias_name")
            if target not in self._open:
                raise NotFound(f"Collection `{target}` doesn't exist!")
            if alias in self._open:
                raise Conflict(f"Collection `{alias}` already exists!")
            changed[alias] = target
        elif kind == "delete_alias":
            changed.pop(body.need_text("alias_name"), None)
        elif kind == "rename_alias":
            old, new = body.need_text("old_alias_name"), body.need_text("new_alias_name")
            if old not in changed:
                raise NotFound(f"Alias `{old}` does not exists!")
            changed[new] = changed.pop(old)
        else:
            raise BadRequest(f"unknown alias action {kind}")
        body.done()
        action.done()

    def flush(self) -> None:
        """Makes everything written so far survive a power cut."""
        for found in self._open.values():
            found.flush()

    def close(self) -> None:
        self.flush()
        for found in self._open.values():
            found.shard.close()
