"""InitProducerId (22): an identity for an idempotent producer.

Behaviour
    Without a transactional id every request gets a new producer id with epoch 0, also one that
    presents an old identity, as brokers do. With one, its producer id is kept and every request
    bumps the epoch; an identity that is not the current one is fenced. Every broker answers.

Versions
    0 to 5. Identities can be presented from 3 on (KIP-360); a fenced one gets PRODUCER_FENCED
    from 4 on, INVALID_PRODUCER_EPOCH before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 5)

_FIRST_FENCED = 4
_MAX_EPOCH = 2**15 - 1
_NO_PRODUCER = -1


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    message = request.message
    if message.transactional_id is None:
        return _identity(state.new_producer_id(), 0)
    current = state.transactional_ids.get(message.transactional_id)
    presented = (message.producer_id, message.producer_epoch)
    if request.version >= 3 and message.producer_id != _NO_PRODUCER and presented != current:
        fenced = request.version >= _FIRST_FENCED
        return refuse(
            request, ErrorCode.PRODUCER_FENCED if fenced else ErrorCode.INVALID_PRODUCER_EPOCH
        )
    if current is None or current[1] == _MAX_EPOCH:
        identity = (state.new_producer_id(), 0)
    else:
        identity = (current[0], current[1] + 1)
    state.transactional_ids[message.transactional_id] = identity
    return _identity(*identity)


def refuse(_: Request, error_code: int) -> dict[str, Any]:
    """No identity."""
    return {"error_code": int(error_code), "producer_id": _NO_PRODUCER, "producer_epoch": -1}


def _identity(producer_id: int, epoch: int) -> dict[str, Any]:
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": epoch}
