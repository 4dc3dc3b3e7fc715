"""Decisions on the batches of an exactly-once write, and their check against repeated batches.

Spark marks a batch as committed after the sink's commit has returned. A batch that Spark has not
marked is repeated, perhaps with other tasks and partitions. So the driver writes one durable
decision before anything of the batch becomes visible: the set of transactions to commit.

A repeated batch reads the same source offsets. If the checkpoint was restored or copied, a batch
with the same number may have other rows. The decision stores its :class:`Contents`, so that this is
detected as an error.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass

from kafkaclient.errors import CheckpointMismatchError
from kafkaclient.types import PreparedTransaction

_log = logging.getLogger(__name__)

_RECOVERY_ADVICE = (
    "Restore the newest checkpoint, or give the query a new checkpointLocation and start it at the "
    "decided end offsets."
)


@dataclass(frozen=True, slots=True)
class Contents:
    """Distinguishes a repeated batch from another batch with the same number."""

    rows: int
    checksum: int
    """Equal for equal rows, regardless of their order and of the number of tasks."""
    target: str | None
    """The topic of all rows. None: each row names its topic."""
    end_offsets: str | None = None
    """The batch's end offsets in its sources, from Spark's checkpoint. None: not readable."""

    def difference(self, now: Contents) -> str | None:
        """How the batch of ``now`` differs from the decided one. None if it is the same batch. If
        both have end offsets, only these are compared: a nondeterministic query (``rand()``) may
        yield other rows for the same input, and committing the decided rows loses no input."""
        if self.target != now.target:
            before, after = (
                "the topics that rows name" if target is None else f"topic {target}"
                for target in (self.target, now.target)
            )
            return f"it was decided for {before} and is for {after} now"
        if self.end_offsets is not None and now.end_offsets is not None:
            same = self.end_offsets == now.end_offsets
            return None if same else f"its source's end offsets are {now.end_offsets} now"
        if (self.rows, self.checksum) == (now.rows, now.checksum):
            return None
        return (
            f"it was decided with {self.rows} rows (checksum {self.checksum:x}) and has {now.rows} "
            f"rows (checksum {now.checksum:x}) now"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Exactly these transactions make up batch ``batch``. ``done``: all are committed."""

    batch: int
    transactions: tuple[PreparedTransaction, ...]
    done: bool = False
    contents: Contents | None = None
    """None: repetitions are not checked."""

    def to_json(self) -> bytes:
        names = [each.transactional_id for each in self.transactions]
        prefix = os.path.commonprefix(names)  # noqa: RUF071 - not paths
        fields = {
            "batch": self.batch,
            "done": self.done,
            "contents": self.contents and asdict(self.contents),
            "prefix": prefix,
            "transactions": [
                (name[len(prefix) :], *each[1:])
                for name, each in zip(names, self.transactions, strict=True)
            ],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """Decode :meth:`to_json`."""
        read = json.loads(text)
        prefix = read["prefix"]
        transactions = tuple(
            PreparedTransaction(prefix + name, *rest) for name, *rest in read["transactions"]
        )
        contents = Contents(**read["contents"]) if read["contents"] else None
        return cls(read["batch"], transactions, read["done"], contents)


def check_order(last: Decision | None, wanted: Decision) -> None:
    """Raise CheckpointMismatchError if a later batch than the wanted one is decided."""
    if last is not None and last.batch > wanted.batch:
        raise CheckpointMismatchError(
            f"batch {wanted.batch} is not committed: batch {last.batch} of this query has been "
            f"decided{_up_to(last)}. The query runs twice, or an old checkpoint was restored. Stop "
            f"all runs but one. {_RECOVERY_ADVICE}"
        )


def check_contents(decided: Decision, wanted: Decision, *, accept_loss: bool) -> None:
    """Raise CheckpointMismatchError, or log it, if the decided batch is another one."""
    if decided.contents is None or wanted.contents is None:
        return
    difference = decided.contents.difference(wanted.contents)
    if difference is None:
        return
    what = (
        f"batch {wanted.batch} of this query was decided before, with {decided.contents.rows} rows"
        f"{_up_to(decided)}; these rows are committed. The batch that Spark repeats now is "
        f"different: {difference}"
    )
    if accept_loss:
        _log.error("%s. failOnDataLoss=false: the repeated batch's rows are not written", what)
        return
    raise CheckpointMismatchError(
        f"{what}. An old checkpoint was restored, a copy of it is in use, the target was changed, "
        "or (if the end offsets cannot be read) the query yields other rows for the same input. "
        f"{_RECOVERY_ADVICE} failOnDataLoss=false continues with the decided rows: rows only in "
        "the repeated batch are lost, and rows that later batches contain again are duplicated"
    )


def _up_to(decision: Decision) -> str:
    contents = decision.contents
    if contents is None or contents.end_offsets is None:
        return ""
    return f", up to the end offsets {contents.end_offsets}"
