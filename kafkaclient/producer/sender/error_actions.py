"""What a broker's answer means for a batch: one table over every error code.

Source: Java's ``Sender.completeBatch``/``canRetry`` and ``TransactionManager.canRetry``. A code
that is not listed fails the batch when Kafka calls it final, and is retried when Kafka calls it
retriable. Unlike Java's, a producer survives CLUSTER_AUTHORIZATION_FAILED (brokers before 3.0 that
took the permission for idempotence back), as it does when it asks for its producer id.
"""

from __future__ import annotations

from enum import Enum

from kafkaclient.broker_errors import BROKER_ERRORS

__all__ = ["AMBIGUOUS_CODES", "REFRESH_CODES", "ErrorAction", "action_for"]


class ErrorAction(Enum):
    """What happens to a batch next."""

    DONE = "the batch is in the log"
    RETRY = "send it again after a back-off, with the same sequence"
    SPLIT = "halve it and send the parts; a lone record fails"
    RESEQUENCE = (
        "the broker's idea of the sequence differs: retry, with a new epoch if first in line"
    )
    FAIL = "the batch was refused for good; the producer goes on"
    FATAL = "the producer may not go on"


_TABLE: dict[int, ErrorAction] = {
    0: ErrorAction.DONE,
    10: ErrorAction.SPLIT,  # MESSAGE_TOO_LARGE
    18: ErrorAction.FAIL,  # RECORD_LIST_TOO_LARGE: larger than a segment; only 10 is halved
    45: ErrorAction.RESEQUENCE,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: ErrorAction.DONE,  # DUPLICATE_SEQUENCE_NUMBER: written before, its offset is forgotten
    47: ErrorAction.RESEQUENCE,  # INVALID_PRODUCER_EPOCH: not written; a new epoch helps (KIP-360)
    59: ErrorAction.RESEQUENCE,  # UNKNOWN_PRODUCER_ID
    90: ErrorAction.FATAL,  # PRODUCER_FENCED
}

# Answers that say our idea of the cluster is old, so that metadata is asked for again.
REFRESH_CODES = frozenset({3, 5, 6, 13, 56, 72, 74, 75, 100, 103})

# Refusals after which the batch may be in the log all the same: the broker failed at an unknown
# point, waited for replicas in vain, or lost the partition while it waited (3, 6 and 56 are
# answered also after the append: Java's DelayedProduce and checkEnoughReplicasReachOffset).
AMBIGUOUS_CODES = frozenset({-1, 3, 6, 7, 13, 20, 56})


def action_for(code: int) -> ErrorAction:
    """The verdict on a batch whose produce response carries ``code`` (0: no error)."""
    known = _TABLE.get(code)
    if known is not None:
        return known
    _, retriable, _, _ = BROKER_ERRORS.get(code, ("", False, None, ""))
    return ErrorAction.RETRY if retriable else ErrorAction.FAIL
