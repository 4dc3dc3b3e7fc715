"""What a broker's answer means for a batch: one table of error codes.

Source: Java's ``Sender.completeBatch``/``canRetry`` and ``TransactionManager.canRetry``. A code
that is not listed is retried if Kafka calls it retriable, and fails the batch otherwise. Unlike
Java's, this producer survives CLUSTER_AUTHORIZATION_FAILED (from brokers before 3.0 that withdrew
the permission for idempotence), as it does when it requests its producer id.

INVALID_PRODUCER_EPOCH (47) means that the epoch is old. Without a transaction the next epoch
repairs that. In a transaction the batch fails, and with it the transaction: the leader does not
know why the epoch is old. PRODUCER_FENCED (90): another producer has the transactional id.
"""

from __future__ import annotations

from enum import Enum

from kafkaclient.broker_errors import BROKER_ERRORS


class ErrorAction(Enum):
    """What happens to a batch next."""

    DONE = "the batch is in the log"
    RETRY = "send it again after a back-off, with the same sequence"
    SPLIT = "halve it and send the parts; a lone record fails"
    RESEQUENCE = "the broker expects another sequence: retry, with a new epoch if it is the oldest"
    FAIL = "the batch fails, and an open transaction can only be aborted; the producer goes on"
    FATAL = "the batch fails; the producer cannot go on"


_TABLE: dict[int, ErrorAction] = {
    0: ErrorAction.DONE,
    10: ErrorAction.SPLIT,  # MESSAGE_TOO_LARGE
    18: ErrorAction.FAIL,  # RECORD_LIST_TOO_LARGE: larger than a segment; only 10 is halved
    45: ErrorAction.RESEQUENCE,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: ErrorAction.DONE,  # DUPLICATE_SEQUENCE_NUMBER: written before, its offset is forgotten
    47: ErrorAction.RESEQUENCE,  # INVALID_PRODUCER_EPOCH: not written; a new epoch helps (KIP-360)
    49: ErrorAction.FATAL,  # INVALID_PRODUCER_ID_MAPPING: as the coordinator says (KAFKA-18019)
    59: ErrorAction.RESEQUENCE,  # UNKNOWN_PRODUCER_ID
    90: ErrorAction.FATAL,  # PRODUCER_FENCED
}

# Answers which show that the producer's metadata is stale: they request a refresh.
REFRESH_CODES = frozenset({3, 5, 6, 13, 56, 72, 74, 75, 100, 103})

# Errors after which the batch may be in the log nevertheless: the broker failed at an unknown
# point, waited too long for replicas, or lost the partition while it waited (3, 6 and 56 are
# answered also after the append: Java's DelayedProduce and checkEnoughReplicasReachOffset).
AMBIGUOUS_CODES = frozenset({-1, 3, 6, 7, 13, 20, 56})


def is_ambiguous(code: int) -> bool:
    """Whether the batch may be in the log despite this error; also with a code that this client
    does not know."""
    return code in AMBIGUOUS_CODES or code not in BROKER_ERRORS


def action_for(code: int) -> ErrorAction:
    """What happens to a batch whose Produce response carries ``code`` (0: no error)."""
    known = _TABLE.get(code)
    if known is not None:
        return known
    _, retriable, _, _ = BROKER_ERRORS.get(code, ("", False, None, ""))
    return ErrorAction.RETRY if retriable else ErrorAction.FAIL
