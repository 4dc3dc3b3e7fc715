"""How long the partitions of a killed member stand still, ours beside Java's consumer:
``python -m benchmarks.killed_member --out build/killed-member``.

Two members share a topic. One gets SIGKILL; the other has its partitions when its session is over.
Kinds of members take turns. A partition has two times: from the SIGKILL until the group has given
it to the other member, and until that has processed its first record. The SIGKILL comes in each
round at another time between two heartbeats, after members have settled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.clients import JAVA, OURS
from experiments.consumer_chaos.load import Load
from experiments.consumer_chaos.member_log import read_stints
from experiments.consumer_chaos.plan import PROTOCOLS
from experiments.machine import cluster_facts
from kafkaclient.admin import Admin
from kafkaclient.perf.run import write_runs
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jvm import Jvm, find_java

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

PARTITIONS = 8
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
RATE = 400.0
_SETTLE_S = 12.0  # for 10 s after a rebalance our members send heartbeats more often
_POLL_S = 0.1
_WITHIN_S = 60.0
_HEAP_MB = 96
_BROKER_CONFIG = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
}


class Seen(NamedTuple):
    """What a member has told so far."""

    owned: set[int]
    given: dict[int, float]
    """Partition -> when it was assigned last (seconds since 1970)."""
    records: list[tuple[float, int]]
    """When a record was processed, and its partition."""


class Times(NamedTuple):
    """Of a killed member's partition, in seconds after the SIGKILL."""

    given: float
    first_record: float


class _Ours:
    name = OURS

    def __init__(self, bootstrap: str, group: str, protocol: str, folder: Path) -> None:
        app = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "topics": [group],
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        self._options = {"logs": str(folder), "ports": {}, "app": app, "is_swift": True}
        self._folder = folder

    async def start(self, name: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "experiments.consumer_chaos.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        options = {**self._options, "app": {**self._options["app"], "state_dir": name}}  # type: ignore[dict-item]
        assert process.stdin is not None
        process.stdin.write(json.dumps(options).encode() + b"\n")
        return process

    def seen(self, name: str) -> Seen:
        lines = [line for path in self._folder.glob(f"{name}-*") for line in _lines(path)]
        stints = read_stints(name, lines)
        return Seen(
            {each.partition for each in stints if each.how == "died"},
            {each.partition: each.began for each in stints},
            [(record.finished, each.partition) for each in stints for record in each.records],
        )


class _Java:
    """Kafka's ``VerifiableConsumer``, which prints each record."""

    name = JAVA

    def __init__(self, bootstrap: str, group: str, protocol: str, folder: Path) -> None:
        assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        classic = ("--session-timeout", str(SESSION_MS), "--assignment-strategy", assignor)
        self._words = [
            *("--bootstrap-server", bootstrap, "--topic", group, "--group-id", group),
            *("--group-protocol", protocol, "--verbose"),
            *(classic if protocol == "classic" else ()),
        ]
        self._folder = folder

    async def start(self, name: str) -> Process:
        jars = await asyncio.to_thread(lambda: JarCache().ensure(read_lock("4.3.1")))
        jvm = Jvm((await asyncio.to_thread(find_java)).path, jars, quick=True)
        command = jvm.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            self._words,
            heap_mb=_HEAP_MB,
            properties={"log4j2.level": "OFF"},
        )
        with (self._folder / name).open("wb") as told:
            return await asyncio.create_subprocess_exec(
                *command, stdout=told, stderr=asyncio.subprocess.DEVNULL
            )

    def seen(self, name: str) -> Seen:
        seen = Seen(set(), {}, [])
        for line in _lines(self._folder / name):
            event = json.loads(line)
            partitions = {each["partition"] for each in event.get("partitions", ())}
            match event["name"]:
                case "partitions_assigned":
                    seen.owned.update(partitions)
                    seen.given.update(dict.fromkeys(partitions, event["timestamp"] / 1000))
                case "partitions_revoked":
                    seen.owned.difference_update(partitions)
                case "record_data":
                    seen.records.append((event["timestamp"] / 1000, event["partition"]))
        return seen


def _lines(path: Path) -> list[str]:
    """The whole lines of a file that is still written."""
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_WITHIN_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(_POLL_S)


async def kill_one(member: Any, settle_s: float) -> list[Times]:
    """The times of the partitions of a member that is killed when it has had them that long."""
    processes = [await member.start(name) for name in ("victim", "other")]
    try:
        await _until(
            lambda: all(
                len(member.seen(name).owned) == PARTITIONS // 2 for name in ("victim", "other")
            )
        )
        await asyncio.sleep(settle_s)
        orphans = member.seen("victim").owned
        processes[0].send_signal(signal.SIGKILL)
        killed = time.time()

        def first() -> dict[int, float]:
            """Partition -> when the other member processed its first record."""
            later = [each for each in member.seen("other").records if each[1] in orphans]
            return {partition: at for at, partition in sorted(later, reverse=True) if at > killed}

        await _until(lambda: first().keys() == orphans)
        given = member.seen("other").given
        return [Times(given[each] - killed, at - killed) for each, at in first().items()]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def measure(rounds: int, out: Path) -> None:
    """Print and write the times of each kind of member."""
    found: dict[tuple[str, str], list[Times]] = {}
    async with LocalCluster(brokers=1, config=_BROKER_CONFIG) as cluster:
        for number in range(rounds):
            settle_s = _SETTLE_S + HEARTBEAT_MS / 1000 * number / rounds
            for protocol in PROTOCOLS:
                for kind in (_Ours, _Java):
                    topic = f"{kind.name}-{protocol}-{number}"
                    async with Admin(cluster.bootstrap) as admin:
                        await admin.create_topic(topic, PARTITIONS, 1)
                    load = Load(cluster.bootstrap, [topic], RATE, number)
                    sending = asyncio.create_task(load.run())
                    with tempfile.TemporaryDirectory() as folder:
                        member = kind(cluster.bootstrap, topic, protocol, Path(folder))
                        times = await kill_one(member, settle_s)
                    load.stop()
                    await sending
                    print(f"{topic}: {_told(times)}")
                    found.setdefault((kind.name, protocol), []).extend(times)
        machine = await cluster_facts(cluster)
    plan = {"rounds": rounds, "session_timeout_ms": SESSION_MS, "partitions": PARTITIONS}
    runs = [
        {
            "client": client,
            "protocol": protocol,
            "partitions": len(times),
            **{
                f"{field}_{name}_s": round(of([getattr(each, field) for each in times]), 3)
                for field in Times._fields
                for name, of in (("median", median), ("max", max))
            },
            "times_s": [[round(each, 3) for each in pair] for pair in sorted(times)],
        }
        for (client, protocol), times in found.items()
    ]
    write_runs(out / "summary.json", runs, experiment="killed-member", plan=plan, machine=machine)
    for (client, protocol), times in found.items():
        print(f"{client}, {protocol}: {_told(times)}")


def _told(times: Sequence[Times]) -> str:
    given, first = zip(*times, strict=True)
    return (
        f"given after {median(given):.2f} s (at most {max(given):.2f} s), first record after "
        f"{median(first):.2f} s (at most {max(first):.2f} s), {len(times)} partitions"
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(measure(given.rounds, given.out))


if __name__ == "__main__":
    main()
