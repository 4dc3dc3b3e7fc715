"""The parts of aiokafka that the hooks rely on have not changed.

A release of aiokafka that changes one of them fails here. Read what changed, then correct the
hashes.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from types import SimpleNamespace

import aiokafka
import pytest
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.consumer.subscription_state import Subscription, SubscriptionState

from kafkaclient.streams.membership.aiokafka_hooks import ConsumerHooks

RELIED_ON = (
    GroupCoordinator.request_rejoin,
    GroupCoordinator.reset_generation,
    GroupCoordinator.ensure_active_group,
    GroupCoordinator._on_join_prepare,
    GroupCoordinator._perform_assignment,
    GroupCoordinator._on_join_complete,
    CoordinatorGroupRebalance.perform_group_join,
    CoordinatorGroupRebalance._on_join_leader,
    CoordinatorGroupRebalance._send_sync_group_request,
    Subscription._assign,
    Subscription._begin_reassignment,
    SubscriptionState.assign_from_subscribed,
)
READ = {
    "GroupCoordinator.request_rejoin": "f70a261c91c38cb5",
    "GroupCoordinator.reset_generation": "537aa37c531b4de9",
    "GroupCoordinator.ensure_active_group": "33c84c1a93012e81",
    "GroupCoordinator._on_join_prepare": "4d9524afc0ee2c2f",
    "GroupCoordinator._perform_assignment": "a5cf61fa97320199",
    "GroupCoordinator._on_join_complete": "0b0b3d204b408f3c",
    "CoordinatorGroupRebalance.perform_group_join": "ff2c2109b2e9868d",
    "CoordinatorGroupRebalance._on_join_leader": "c57a3e85197dcc20",
    "CoordinatorGroupRebalance._send_sync_group_request": "7429ca078ddf9bb7",
    "Subscription._assign": "bf731e02b121db9f",
    "Subscription._begin_reassignment": "ff4ba53b48ce4a05",
    "SubscriptionState.assign_from_subscribed": "faf16f1b629aa838",
}


@pytest.mark.parametrize("function", RELIED_ON, ids=lambda function: function.__qualname__)
def test_aiokafka_has_not_changed(function) -> None:
    found = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]
    assert found == READ[function.__qualname__], (
        f"aiokafka {aiokafka.__version__} has another {function.__qualname__} than 0.14.0: see "
        "whether kafkaclient/streams/membership still holds"
    )


def test_every_hash_is_checked() -> None:
    assert READ.keys() == {function.__qualname__ for function in RELIED_ON}


async def test_the_hooks_reach_the_coordinator() -> None:
    consumer = aiokafka.AIOKafkaConsumer(group_id="g", bootstrap_servers="127.0.0.1:1")
    hooks = ConsumerHooks(consumer)
    calls: list[str] = []

    async def perform(response: str) -> str:
        calls.append(f"perform {response}")
        return "assignment"

    async def prepare() -> None:
        calls.append("prepare")

    rejoin_needed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    consumer._coordinator = SimpleNamespace(
        member_id="m",
        generation=3,
        _rejoin_needed_fut=rejoin_needed,
        request_rejoin=lambda: rejoin_needed.set_result(None),
        _perform_assignment=perform,
        close=lambda: asyncio.sleep(0),
    )
    try:
        assert hooks.group == ("g", 3, "m", None)
        assert hooks.is_rebalancing  # nothing is subscribed to yet
        consumer._subscription.assign_from_user([aiokafka.TopicPartition("t", 0)])
        assert not hooks.is_rebalancing
        hooks.request_rejoin()
        assert hooks.is_rebalancing
        hooks.before_assignment(prepare)
        assert await consumer._coordinator._perform_assignment("r") == "assignment"
        assert calls == ["prepare", "perform r"]
    finally:
        await consumer.stop()
