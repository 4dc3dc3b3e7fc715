"""What must not live on in a child process.

A child that is forked has copies of everything: sockets that are the parent's connections, records
that the parent is going to send. Whoever owns such a thing is told in the child, once, before
anything else runs there. Nothing is looked at in the parent, and nothing while records are sent.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "guard"]


class Forkable(Protocol):
    """Something that belongs to the process that made it."""

    def forked(self) -> None:
        """This is a child process: let go. Must neither fail nor call an event loop, which may be
        another thread's, and that thread does not exist here."""
        ...


_guarded: WeakSet[Forkable] = WeakSet()


def guard(owner: Forkable) -> None:
    """Have :meth:`Forkable.forked` called in every child that is forked while ``owner`` lives."""
    _guarded.add(owner)


def _in_child() -> None:
    for owner in list(_guarded):
        owner.forked()


os.register_at_fork(after_in_child=_in_child)
