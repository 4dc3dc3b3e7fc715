"""Makes the faults of a schedule happen, and records when each did."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from examples.standalone_spark import executors
from experiments.spark_chaos.schedule import (
    BROKER_KINDS,
    COORDINATOR_KINDS,
    TOPIC_KINDS,
    Fault,
    FaultKind,
)
from experiments.strikes import BaseStrikes, coordinator_partition
from kafkaclient.errors import KafkaError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from experiments.spark_chaos.drivers import Driver
    from kafkaclient.admin import Admin
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Strikes", "Struck", "ledger_name"]

_LOOK_S = 0.5
_MOVED_WITHIN_S = 20.0
_COORDINATORS = "__transaction_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that happened; ``began`` is in seconds after the first batch."""

    fault: Fault
    began: float
    lasted_s: float
    """Until the process runs again, and the broker is in the cluster again."""
    note: str = ""
    """What did not go as planned."""

    def as_json(self) -> dict[str, Any]:
        return {**self.fault.as_json(), "lasted_s": self.lasted_s, "note": self.note}


class Strikes(BaseStrikes[Fault, Struck]):
    """``await run()`` makes the faults happen; at its end the driver, every executor and broker
    runs.

    Faults of the driver, of an executor, of brokers and of topics each wait for each other. A
    driver that ends by itself is started again, as by a supervisor, and noted in ``ended``.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        admin: Admin,
        driver: Driver,
        topics: Sequence[str],
        ledger: Callable[[], str | None],
        faults: Sequence[Fault],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(cluster, faults, say)
        self._admin = admin
        self._driver = driver
        self._topics = topics
        self._ledger = ledger

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            async with self._locks["driver"]:
                if self._driver.status is not None:
                    self.ended.append(self._driver.last_words)
                    self._say(f"the driver ended by itself: {self._driver.last_words}")
                    await asyncio.to_thread(self._driver.start)

    async def _strike(self, fault: Fault, begins: float) -> None:
        await asyncio.sleep(begins + fault.at - time.monotonic())
        async with self._locks[_owner(fault)]:
            self._say(f"{fault.kind} for {fault.seconds:.1f} s")
            began, note = time.monotonic(), ""
            try:
                note = await self._happen(fault)
            except (KafkaError, OSError, TimeoutError, psutil.Error) as error:
                note = f"{type(error).__name__}: {error}"
            if note:
                self._say(f"{fault.kind}: {note}")
            lasted = round(time.monotonic() - began, 3)
            self.struck.append(
                Struck(fault=fault, began=round(began - begins, 3), lasted_s=lasted, note=note)
            )

    async def _happen(self, fault: Fault) -> str:
        if fault.kind in BROKER_KINDS:
            return await self._broker(fault)
        driver = self._driver
        match fault.kind:
            case FaultKind.DRIVER_KILL:
                await asyncio.to_thread(driver.kill)
                await asyncio.to_thread(driver.start)
            case FaultKind.DRIVER_PAUSE:
                driver.pause()
                await asyncio.sleep(fault.seconds)
                driver.resume()
            case FaultKind.MOVE_LEADERS:
                await self._move_leaders()
            case FaultKind.ADD_PARTITIONS:
                found = await self._admin.describe_topics(self._topics)
                more = {name: len(each.partitions) + 1 for name, each in found.items()}
                for name, count in more.items():
                    await self._admin.add_partitions(name, count)
            case _:
                return await self._executor(fault)
        return ""

    async def _executor(self, fault: Fault) -> str:
        found = sorted(await asyncio.to_thread(executors), key=lambda process: process.pid)
        if not found:
            return "no executor was there"
        executor = found[fault.which % len(found)]
        if fault.kind is FaultKind.EXECUTOR_KILL:
            executor.send_signal(signal.SIGKILL)
            return ""
        paused = [executor, *executor.children(recursive=True)]
        _signal(paused, signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
        _signal(paused, signal.SIGCONT)
        return ""

    async def _broker(self, fault: Fault) -> str:
        cluster, broker, note = self._cluster, fault.which, ""
        if fault.kind in COORDINATOR_KINDS:
            found = await self._coordinator()
            if found is None:
                note = f"no coordinator was known: broker {broker} instead"
            else:
                broker = found
        if fault.kind in (FaultKind.BROKER_PAUSE, FaultKind.COORDINATOR_PAUSE):
            await cluster.pause(broker)
            await asyncio.sleep(fault.seconds)
            await cluster.resume(broker)
            return note
        await cluster.kill(broker)
        await asyncio.sleep(fault.seconds)
        await cluster.start_broker(broker)
        return note

    async def _coordinator(self) -> int | None:
        """The broker that coordinates the transactions of the query's ledger."""
        ledger = self._ledger()
        if ledger is None:
            return None
        partitions = (await self._admin.describe_topic(_COORDINATORS)).partitions
        wanted = coordinator_partition(ledger, len(partitions))
        leader = next(each.leader for each in partitions if each.partition == wanted)
        return leader if leader is not None and leader >= 0 else None

    async def _move_leaders(self) -> None:
        """Take each leader away from its partition, and give the replica back afterwards."""
        admin, brokers = self._admin, self._cluster.brokers
        there = await admin.list_topics()
        known = [name for name in (*self._topics, _COORDINATORS) if name in there]
        without: dict[TopicPartition, list[int]] = {}
        for name, topic in (await admin.describe_topics(known)).items():
            for each in topic.partitions:
                others = [broker for broker in brokers if broker != each.leader]
                without[TopicPartition(name, each.partition)] = others
        await admin.alter_partition_reassignments(without)
        await self._moved()
        back = {
            tp: [*nodes, *(broker for broker in brokers if broker not in nodes)]
            for tp, nodes in without.items()
        }
        await admin.alter_partition_reassignments(back)
        await self._moved()

    async def _moved(self) -> None:
        async with asyncio.timeout(_MOVED_WITHIN_S):
            while await self._admin.list_partition_reassignments():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)


def ledger_name(checkpoint: Path, prefix: str) -> str | None:
    """The query's transactional id and ledger; None before the query has begun."""
    try:
        text = (checkpoint / "metadata").read_text("utf-8")
    except OSError:
        return None
    return f"{prefix}-{json.loads(text)['id']}"


def _owner(fault: Fault) -> str:
    if fault.kind in BROKER_KINDS:
        return "brokers"
    if fault.kind in TOPIC_KINDS:
        return "topics"
    return fault.kind.value.partition(" ")[0]


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
