"""A topic that is deleted and created again under a member of a KIP-848 group, whose brokers learn
of it one after the other."""

from __future__ import annotations

import asyncio
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake.interceptors import delay
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.testing.fake import FakeCluster, Request
    from kafkaclient.testing.fake.interceptors import Answer
    from tests.consumer.conftest import Tools

NUMBERS = range(4)
_STEP_S = 0.7  # between one answer that is new and the next
_OLD_END = 3
_INCONSISTENT_TOPIC_ID = 103
_NEW = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]

ORDERS = tuple(permutations(("heartbeat", "metadata", "fetch", "committed", "offsets")))
"""Whose answers are about the new topic first, second, ..."""
MEANWHILE = tuple(
    product(
        ("old", "unknown"),
        ("old", "none"),
        (
            "old",
            ErrorCode.UNKNOWN_TOPIC_ID,
            _INCONSISTENT_TOPIC_ID,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ),
    )
)
"""What metadata, heartbeats and fetches answer before that."""


class Behind:
    """Has the brokers answer as before the topic was created again, each API until its time."""

    def __init__(
        self,
        fake: FakeCluster,
        order: tuple[str, ...],
        metadata: str,
        heartbeat: str,
        fetch: str | ErrorCode,
    ) -> None:
        self._fake = fake
        self._meanwhile = {"metadata": metadata, "heartbeat": heartbeat, "fetch": fetch}
        self._since: dict[str, float] = {}
        self._order = order
        self._old_id = self._id()
        apis = {
            ApiKey.METADATA: self._metadata,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.FETCH: self._fetch,
            ApiKey.OFFSET_FETCH: self._committed,
            ApiKey.LIST_OFFSETS: self._offsets,
        }
        for api, answer in apis.items():
            fake.control(api, answer, keep=True)

    def _id(self) -> UUID:
        return self._fake._state.topics["t"].topic_id

    def begin(self) -> None:
        """The topic is another one from now on."""
        now = asyncio.get_running_loop().time()
        self._since = {name: now + n * _STEP_S for n, name in enumerate(self._order, 1)}

    def _is_new(self, name: str) -> bool:
        return asyncio.get_running_loop().time() >= self._since.get(name, 0.0)

    def _metadata(self, _: Request) -> Answer:
        if self._is_new("metadata"):
            return None
        partitions = [
            {"partition_index": n, "leader_id": n % 2, "leader_epoch": 0, "replica_nodes": [n % 2]}
            for n in NUMBERS
        ]
        topic: dict[str, Any] = {"name": "t", "topic_id": self._old_id, "partitions": partitions}
        if self._meanwhile["metadata"] == "unknown":
            topic = {"name": "t", "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return {
            "brokers": [{"node_id": n, "host": f"fake-{n}", "port": 9092} for n in range(2)],
            "cluster_id": self._fake._state.cluster_id,
            "topics": [topic],
        }

    def _heartbeat(self, request: Request) -> Answer:
        if self._is_new("heartbeat"):
            return None
        has_none = self._meanwhile["heartbeat"] == "none"
        return {
            "member_id": request.message.member_id,
            "member_epoch": request.message.member_epoch,
            "heartbeat_interval_ms": 300,
            "assignment": {} if has_none else {self._old_id: [*NUMBERS]},
        }

    def _fetch(self, request: Request) -> Answer:
        if self._is_new("fetch"):
            return None
        how = self._meanwhile["fetch"]

        def answer(topic: Any, wanted: Any) -> dict[str, Any]:
            is_known = topic.topic_id == self._old_id
            code = how if how != "old" else 0 if is_known else ErrorCode.UNKNOWN_TOPIC_ID
            end = _OLD_END if wanted.partition == 0 else 0
            ends = {"high_watermark": end, "last_stable_offset": end}
            return {"partition_index": wanted.partition, "error_code": code, **ends, "records": b""}

        return delay(
            0.05,
            {
                "responses": [
                    {"topic_id": t.topic_id, "partitions": [answer(t, p) for p in t.partitions]}
                    for t in request.message.topics
                ]
            },
        )

    def _committed(self, request: Request) -> Answer:
        if self._is_new("committed"):
            return None

        def answer(topic: Any, number: int) -> dict[str, Any]:
            is_known = topic.topic_id == self._old_id
            return {
                "partition_index": number,
                "committed_offset": _OLD_END if is_known and number == 0 else -1,
                "error_code": 0 if is_known else ErrorCode.UNKNOWN_TOPIC_ID,
            }

        return {
            "groups": [
                {
                    "group_id": group.group_id,
                    "topics": [
                        {
                            "topic_id": t.topic_id,
                            "partitions": [answer(t, n) for n in t.partition_indexes],
                        }
                        for t in group.topics
                    ],
                }
                for group in request.message.groups
            ]
        }

    def _offsets(self, request: Request) -> Answer:
        if self._is_new("offsets"):
            return None

        def answer(partition: Any) -> dict[str, Any]:
            number, is_end = partition.partition_index, partition.timestamp == -1
            return {
                "partition_index": number,
                "offset": _OLD_END if is_end and number == 0 else 0,
                "leader_epoch": 0,
            }

        return {
            "topics": [
                {"name": t.name, "partitions": [answer(p) for p in t.partitions]}
                for t in request.message.topics
            ]
        }


async def _consume(
    fake: FakeCluster, tools: Tools, order: tuple[str, ...], meanwhile: tuple[Any, ...], reset: str
) -> list[tuple[int, int]]:
    """What is consumed of the new topic, which has four and one records."""
    behind = Behind(fake, order, *meanwhile)
    tools.fill(fake, 0, _OLD_END)
    options = {"group_id": "g", "topics": ["t"], "group_protocol": "consumer"}
    async with tools.consumer(
        fake, auto_offset_reset=reset, auto_commit_interval_ms=100, **options
    ) as consumer:
        seen: list[tuple[int, int]] = []

        async def loop() -> None:
            while True:
                record = await consumer.getone()
                seen.append((record.partition, record.offset))

        task = asyncio.create_task(loop())
        if reset == "latest":
            await consumer.wait_assigned()
            await consumer.wait_position(TopicPartition("t", 0))
        else:
            await tools.until(lambda: len(seen) == _OLD_END)
        await asyncio.sleep(1)
        seen.clear()
        fake.delete_topic("t")
        behind.begin()
        fake.create_topic("t", len(NUMBERS))
        tools.fill(fake, 0, 4)
        tools.fill(fake, 1, 1)
        await asyncio.sleep(20)
        assert not task.done()
        task.cancel()
    return seen


RESETS = ("latest", "earliest")
CASES = [
    pytest.param(
        ORDERS[n * 37 % len(ORDERS)],
        MEANWHILE[n % len(MEANWHILE)],
        RESETS[n // len(MEANWHILE) % 2],
        marks=pytest.mark.full if n % 9 else (),
    )
    for n in range(8 * len(MEANWHILE))
]
"""Each order, and each answer meanwhile with both resets."""


@pytest.mark.parametrize(("order", "meanwhile", "reset"), CASES)
@virtual_time
async def test_each_record_of_the_new_topic_is_consumed_once(
    fake: FakeCluster, tools: Tools, order: tuple[str, ...], meanwhile: tuple[Any, ...], reset: str
) -> None:
    assert sorted(await _consume(fake, tools, order, meanwhile, reset)) == _NEW


@virtual_time
async def test_metadata_of_the_new_topic_takes_nothing_from_a_member_of_the_old_one(
    fake: FakeCluster, tools: Tools
) -> None:
    """Its heartbeat tells when the group has noticed (Java: ``assignedTopicNamesCache``)."""
    options = {"group_id": "g", "topics": ["t"], "group_protocol": "consumer"}
    behind = Behind(fake, ("metadata", *["heartbeat"] * 9), "old", "old", "old")
    async with tools.consumer(fake, **options) as consumer:
        await consumer.wait_assigned()
        behind.begin()
        fake.delete_topic("t")
        fake.create_topic("t", len(NUMBERS))
        until = asyncio.get_running_loop().time() + 5
        while asyncio.get_running_loop().time() < until:
            await consumer.getmany(timeout_ms=100)
            assert len(consumer.assignment) == len(NUMBERS)
