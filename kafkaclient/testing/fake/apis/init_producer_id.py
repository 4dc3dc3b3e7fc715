"""InitProducerId (22): assigns a producer id and epoch.

Behavior
    Without a transactional id any broker answers, and every request gets a new producer id with
    epoch 0, even if it contains an old producer id. With a transactional id only its coordinator
    answers (``transactions.py``). The producer id stays, and every request increments the epoch. A
    producer id and epoch that are not current are fenced. An open transaction is aborted first.

Versions
    0 to 5. From 3 on a request may contain the current producer id and epoch (KIP-360). A fenced
    producer gets PRODUCER_FENCED from 4 on, INVALID_PRODUCER_EPOCH before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 5)

_FIRST_WITH_IDENTITY = 3
_FIRST_FENCED = 4
_NO_PRODUCER = -1


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    message = request.message
    if message.transactional_id is None:
        return _identity(state.new_producer_id(), 0)
    name, coordinator = message.transactional_id, state.transactions
    presents = request.version >= _FIRST_WITH_IDENTITY
    code = coordinator.refusal(name, request.broker) or coordinator.initialize(
        name,
        message.producer_id if presents else _NO_PRODUCER,
        message.producer_epoch if presents else -1,
    )
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code:
        return refuse(request, code)
    known = coordinator.ids[name]
    known.timeout_ms = message.transaction_timeout_ms
    return _identity(known.producer_id, known.epoch)


def refuse(_: Request, error_code: int) -> dict[str, Any]:
    """The answer without a producer id."""
    return {"error_code": int(error_code), "producer_id": _NO_PRODUCER, "producer_epoch": -1}


def _identity(producer_id: int, epoch: int) -> dict[str, Any]:
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": epoch}
