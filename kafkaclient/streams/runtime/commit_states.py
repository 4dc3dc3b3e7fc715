"""The states of an instance's commits, and the events that change them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommitState(Enum):
    """What the committer does at present."""

    STARTING = "starting"
    """The producer is being started. No record's results are accepted."""
    CLEAN = "clean"
    """There is nothing to commit."""
    DIRTY = "dirty"
    """Results of whole records wait for the next commit."""
    CLOSING = "closing"
    """The commit is due. Results that are being added still belong to it; others wait."""
    COMMITTING = "committing"
    """What the commit contains is fixed, and is being written."""
    ABORTING = "aborting"
    """The commit failed. Its tasks go back to what was committed before."""
    ENDED = "ended"


class CommitEvent(Enum):
    STARTED = "the producer has started"
    ADDED = "a record's results are being added"
    DUE = "the commit is due, and the group takes commits"
    FIXED = "no results are being added any more"
    COMMITTED = "the commit succeeded"
    FAILED = "the commit failed, or cannot succeed any more"
    ABORTED = "nothing of the failed commit is left"
    ENDED = "the instance ends"


_S, _E = CommitState, CommitEvent

TRANSITIONS: Mapping[tuple[CommitState, CommitEvent], CommitState] = {
    (_S.STARTING, _E.STARTED): _S.CLEAN,
    (_S.CLEAN, _E.ADDED): _S.DIRTY,
    (_S.DIRTY, _E.ADDED): _S.DIRTY,
    (_S.DIRTY, _E.DUE): _S.CLOSING,
    (_S.DIRTY, _E.FAILED): _S.ABORTING,
    (_S.CLOSING, _E.FIXED): _S.COMMITTING,
    (_S.CLOSING, _E.FAILED): _S.ABORTING,
    (_S.COMMITTING, _E.COMMITTED): _S.CLEAN,
    (_S.COMMITTING, _E.FAILED): _S.ABORTING,
    (_S.ABORTING, _E.ABORTED): _S.STARTING,
    **{(state, _E.ENDED): _S.ENDED for state in _S},
}
"""(state, event) -> next state. Any other pair is a bug and raises KeyError."""
