"""What can go wrong when the stack starts? Every error is a fact with advice; the command line prints it as it is.

StackError
├── AlreadyRunning      another `hindsight up` holds this home
├── PortTaken           someone else listens there
├── ProgramMissing      no binary for this platform
├── RootNotSupported    Postgres can't run as root here
├── ChildDied           a process ended while it was needed
└── NotReady            a process lives but did not answer in time
"""

from __future__ import annotations


class StackError(Exception):
    """The stack can't do what was asked; the message says why and what to do."""


class AlreadyRunning(StackError):
    """Another supervisor holds the home's lock."""


class PortTaken(StackError):
    """A port that was asked for is in use."""


class ProgramMissing(StackError):
    """A server's program is neither in a wheel nor on PATH."""


class RootNotSupported(StackError):
    """Postgres refuses to run as root and no way around it is permitted here."""


class ChildDied(StackError):
    """A process ended; the message carries the end of its log."""


class NotReady(StackError):
    """A process did not become ready before its deadline; the message carries the end of its log."""
