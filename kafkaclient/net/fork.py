"""Releases sockets and records in a forked child.

A forked child has copies of the parent's connections and of the records that the parent will send.
Each owner of such copies is called once in the child, before other code runs there. Nothing is
checked in the parent, or while records are sent.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object that only the process that made it may use."""

    def forked(self) -> None:
        """Release everything: this is a child process. Must neither raise nor call an event loop,
        whose thread may not exist here."""
        ...


_guarded: WeakSet[Forkable] = WeakSet()


def guard(owner: Forkable) -> None:
    """Call :meth:`Forkable.forked` in every child that is forked while ``owner`` exists."""
    _guarded.add(owner)


def _in_child() -> None:
    for owner in list(_guarded):
        owner.forked()


os.register_at_fork(after_in_child=_in_child)
