"""Several operators at once, in any interleaving of their requests.

Each request of each operator takes its time, so that the requests of others come before, between
and after. Whatever the interleaving: as long as a move is under way its replicas are throttled, and
once all operators have ended nothing of them is left and previous values are back.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kafkaclient.admin import Admin
from kafkaclient.admin.reassign.outcome import (
    EVERY_REPLICA,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    RATE_KEYS,
    Begun,
)
from kafkaclient.errors import BrokerError
from kafkaclient.testing.clock import VirtualTimeLoop
from kafkaclient.testing.fake import FakeCluster, delay
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kafkaclient.testing.fake import Request

TOPICS = {"foo": [(0, 1, 2), (1, 2, 3)], "bar": [(3, 2, 1)]}
PARTITIONS = [TopicPartition(topic, p) for topic, each in TOPICS.items() for p in range(len(each))]
QUOTAS = (1_000, 2_000)
OPERATORS = range(3)

PACED = (
    ApiKey.METADATA,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
)

BEFORE = {
    "foo": {LEADER_REPLICAS: "1:1,0:2", FOLLOWER_REPLICAS: "7:7"},
    "1": {LEADER_RATE: "77"},
    "2": {LEADER_RATE: "88", FOLLOWER_RATE: "99"},
}
"""What somebody else has set."""


def cluster() -> FakeCluster:
    fake = FakeCluster(5)
    for topic, assignments in TOPICS.items():
        fake.create_topic(topic, assignments=assignments)
    inspect(fake).topics["foo"].configs.update(BEFORE["foo"])
    for node in ("1", "2"):
        inspect(fake).broker_configs[node] = dict(BEFORE[node])
    return fake


def configured(fake: FakeCluster) -> dict[str, dict[str, str]]:
    found = {name: dict(topic.configs) for name, topic in inspect(fake).topics.items()}
    found |= {name: dict(own) for name, own in inspect(fake).broker_configs.items()}
    return {name: own for name, own in found.items() if own}


def unthrottled(fake: FakeCluster) -> list[str]:
    """What moves without a bound."""
    found = []
    for partition in PARTITIONS:
        state = inspect(fake).partition(*partition)
        assert state is not None
        lists = inspect(fake).topics[partition.topic].configs
        new = set(state.moving_to) - set(state.moving_from) if state.moving_to else set()
        old = set(state.moving_from) if new else set()
        for key, nodes in ((FOLLOWER_REPLICAS, new), (LEADER_REPLICAS, old)):
            elements = set(lists.get(key, "").split(","))
            for node in nodes:
                if not elements & {f"{partition.partition}:{node}", EVERY_REPLICA}:
                    found.append(f"{partition} on {node} is not in {key}")
                rates = inspect(fake).broker_configs.get(str(node), {})
                if not rates.keys() >= set(RATE_KEYS):
                    found.append(f"{partition}: broker {node} has no rate")
    return found


class Operators(RuleBasedStateMachine):
    """Operators begin, verify, cancel, clear and change the quota; moves end when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.fake = cluster()
        self.bad: list[str] = []
        self.admins: list[Admin] = []
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.begun: dict[int, Begun] = {}

    @initialize(seed=st.integers(0, 10_000))
    def start(self, seed: int) -> None:
        pace = Random(seed)

        def look(_request: Request) -> Any:
            self.bad += unthrottled(self.fake)
            return delay(pace.choice((0.0, 0.01, 0.05, 0.3)))

        for key in PACED:
            self.fake.control(key, look, keep=True)
        self.admins = [
            Admin(
                self.fake.bootstrap,
                dialer=self.fake,
                rng=Random(seed + operator),
                wall_clock=self.loop.time,
            )
            for operator in OPERATORS
        ]
        for admin in self.admins:
            self.loop.run_until_complete(admin.start())

    def begin_task(self, operator: int, call: Coroutine[Any, Any, Any]) -> None:
        task = self.tasks.get(operator)
        if task is not None and not task.done():
            call.close()  # one thing at a time
            return
        self.collect(operator)
        self.tasks[operator] = self.loop.create_task(call)

    def collect_done(self, operator: int) -> None:
        if operator in self.tasks and self.tasks[operator].done():
            self.collect(operator)

    def collect(self, operator: int) -> None:
        task = self.tasks.pop(operator, None)
        if task is None or task.cancelled():
            return
        error = task.exception()
        # Somebody else's move is under way, or the partition is just being moved elsewhere.
        assert error is None or isinstance(error, BrokerError), error
        if error is None and hasattr(task.result(), "failures"):
            assert not task.result().failures
        if error is None and isinstance(task.result(), Begun):
            self.begun[operator] = task.result()

    @rule(
        operator=st.sampled_from(OPERATORS),
        partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        first=st.integers(0, 4),
        quota=st.sampled_from(QUOTAS),
        additional=st.booleans(),
    )
    def begin(self, operator, partitions, first, quota, additional) -> None:
        plan = {p: [(first + n) % 5 for n in range(3)] for p in sorted(partitions)}
        admin = self.admins[operator]
        self.begin_task(operator, admin.reassigner.begin(plan, quota, additional=additional))

    @rule(operator=st.sampled_from(OPERATORS), partition=st.sampled_from(PARTITIONS))
    def verify(self, operator, partition) -> None:
        self.begin_task(operator, self.admins[operator].reassigner.verify({partition: (0, 1, 2)}))

    @rule(operator=st.sampled_from(OPERATORS), partitions=st.sets(st.sampled_from(PARTITIONS)))
    def cancel(self, operator, partitions) -> None:
        self.begin_task(operator, self.admins[operator].reassigner.cancel(partitions or None))

    @rule(operator=st.sampled_from(OPERATORS))
    def undo(self, operator) -> None:
        """What the operator began last, whatever the others have done since."""
        self.collect_done(operator)
        if operator in self.begun:
            self.begin_task(operator, self.admins[operator].reassigner.undo(self.begun[operator]))

    @rule(operator=st.sampled_from(OPERATORS))
    def clear(self, operator) -> None:
        self.begin_task(operator, self.admins[operator].replication_quotas.clear())

    @rule(operator=st.sampled_from(OPERATORS), quota=st.sampled_from(QUOTAS))
    def set_rate(self, operator, quota) -> None:
        self.begin_task(operator, self.admins[operator].replication_quotas.set_rate(quota))

    @rule(operator=st.sampled_from(OPERATORS))
    def interrupt(self, operator) -> None:
        """Ctrl-C."""
        task = self.tasks.get(operator)
        if task is not None:
            task.cancel()

    @rule(partition=st.sampled_from(PARTITIONS))
    def arrive(self, partition) -> None:
        state = inspect(self.fake).partition(*partition)
        if state.moving_to:
            state.finish_reassignment()

    @rule(seconds=st.sampled_from((0.01, 0.05, 0.2, 1.0, 5.0)))
    def wait(self, seconds) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @precondition(lambda self: self.tasks)
    @rule()
    def settle(self) -> None:
        """All come to their end."""
        self.loop.run_until_complete(asyncio.wait(self.tasks.values()))
        for operator in list(self.tasks):
            self.collect(operator)

    @invariant()
    def every_move_is_throttled(self) -> None:
        self.bad += unthrottled(self.fake)
        assert not self.bad, self.bad[0]

    def teardown(self) -> None:
        try:
            if self.admins:
                self.end()
        finally:
            for admin in self.admins:
                self.loop.run_until_complete(admin.close())
            self.loop.close()

    def end(self) -> None:
        if self.tasks:
            self.settle()
        self.every_move_is_throttled()
        self.fake.finish_reassignments()
        last = self.admins[0].reassigner.verify({PARTITIONS[0]: (0, 1, 2)})
        self.loop.run_until_complete(last)
        assert configured(self.fake) == BEFORE


# No shrinking: it would take minutes, and the steps that failed are told all the same.
TestOperators = Operators.TestCase
TestOperators.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
