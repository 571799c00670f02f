"""As whom does Postgres run? It refuses root, so root needs a way around; anyone else needs none.

First choice as root is a user namespace in which root's files appear as an ordinary user's: nothing changes on disk.
Where the kernel or a container forbids that, an unprivileged account of the machine takes over the data folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local_stack.errors import RootNotSupported

_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
_ACCOUNTS = ("postgres", "nobody")


@dataclass(frozen=True)
class Unprivileged:
    """How to run a program without root: a command in front of it, or another user and group."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None


def drop_root(folder: Path, program: str) -> Unprivileged:
    """The way for a program that keeps its data in `folder`. RootNotSupported when none is permitted."""
    if os.geteuid() != 0:
        return Unprivileged()
    if _namespace_allowed():
        return Unprivileged(prefix=_NAMESPACE)
    for name in _ACCOUNTS:
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        _open_for_passing(folder.parent)
        if all(_can_reach(account.pw_uid, account.pw_gid, path) for path in (str(folder.parent), program)):
            return Unprivileged(uid=account.pw_uid, gid=account.pw_gid)
    raise RootNotSupported(
        "Postgres does not run as root, user namespaces are not permitted here, and no unprivileged account can reach "
        f"both {folder} and {program}. Run `hindsight` as an ordinary user, "
        "or choose a --home that others may enter (chmod o+x its parents)."
    )


@cache
def _namespace_allowed() -> bool:
    if shutil.which(_NAMESPACE[0]) is None:
        return False
    try:
        return subprocess.run([*_NAMESPACE, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _open_for_passing(data: Path) -> None:
    """Lets others pass through HOME/data and HOME, which open_home made 0700; their contents stay unreadable."""
    for own in (data, data.parent):
        if own.stat().st_uid == 0:
            own.chmod(own.stat().st_mode | 0o011)


def _can_reach(uid: int, gid: int, path: str) -> bool:
    """True when the account may enter a folder or run a program."""
    test = ["test", "-x", path]
    return subprocess.run(test, user=uid, group=gid, extra_groups=[], capture_output=True, check=False).returncode == 0


def take_ownership(folder: Path, way: Unprivileged) -> None:
    """Makes `folder` (or one file) and all inside belong to whom Postgres will run as. Only root changes anything."""
    if os.geteuid() != 0:
        return
    uid, gid = (way.uid, way.gid) if way.uid is not None and way.gid is not None else (0, 0)
    if folder.stat().st_uid == uid:
        return
    os.chown(folder, uid, gid)
    for parent, _, files in os.walk(folder):
        os.chown(parent, uid, gid)
        for name in files:
            os.chown(os.path.join(parent, name), uid, gid, follow_symlinks=False)
