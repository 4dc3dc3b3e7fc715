"""Throttled reassignments on real brokers, beside Kafka's own tool."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress

import pytest

from experiments.replication_quota.load import SteadyLoad
from integration.shell import Ended, kafkaclient
from kafkaclient.admin import Admin, ConfigResource, ReassignmentPlan
from kafkaclient.admin.reassign.outcome import LOG_DIRS_RATE, RATE_KEYS
from kafkaclient.errors import BrokerError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import (
    AlterReassignmentsCall,
    ConfigKind,
    DescribeConfigsCall,
    IncrementalAlterConfigsCall,
)
from tests.code_blocks import runs

pytestmark = pytest.mark.timeout(240)

KAFKAS_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
MB = 1_000_000


@pytest.fixture
async def admin(kafka_cluster):
    async with Admin(kafka_cluster.bootstrap) as client:
        yield client


@pytest.fixture
def plan_file(tmp_path):
    def write(replicas) -> str:
        path = tmp_path / "plan.json"
        path.write_text(ReassignmentPlan(replicas).to_json())
        return str(path)

    return write


async def spawn(cluster, *words: str) -> asyncio.subprocess.Process:
    """``kafkaclient`` in a process that can get signals."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from kafkaclient.cli import main; main()"),
        *(*words, "--bootstrap-server", cluster.bootstrap),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(cluster, *words: str) -> Ended:
    return await kafkaclient(*words, "--bootstrap-server", cluster.bootstrap)


async def kafkas_tool(cluster, *words: str) -> str:
    ended = await cluster.run_tool(KAFKAS_TOOL, "--bootstrap-server", cluster.bootstrap, *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def fill(cluster, topic: str, megabytes: int, *, partition: int = 0) -> None:
    async with Producer(cluster.bootstrap, linger_ms=20) as producer:
        for _ in range(megabytes * 10):
            await producer.send(topic, bytes(100_000), partition=partition)
        await producer.flush()


async def until(condition, *, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.1)


async def nothing_throttled(admin) -> bool:
    told = await admin.replication_quotas.describe()
    rates = any(b.rates or b.mark for b in told.brokers.values())
    return not (told.topics or told.defaults or rates)


async def nothing_moves(admin) -> bool:
    return not await admin.list_partition_reassignments()


async def at_rest(admin) -> None:
    """Brokers have heard of the last changes, and nothing of them is left."""
    await until(lambda: nothing_throttled(admin))


async def replicas_of(admin, topic: str) -> list[tuple[int, ...]]:
    return [p.replicas for p in (await admin.describe_topic(topic)).partitions]


async def expect_replicas(admin, topic: str, expected: list[tuple[int, ...]]) -> None:
    """Any broker is asked: it may not know the last change yet."""
    with suppress(TimeoutError):
        await until(lambda: replicas_are(admin, topic, expected))
    assert await replicas_of(admin, topic) == expected


async def replicas_are(admin, topic: str, expected: list[tuple[int, ...]]) -> bool:
    return await replicas_of(admin, topic) == expected


@pytest.mark.full
@pytest.mark.local_cluster
async def test_kafkas_tool_verifies_ours_and_the_reverse(
    kafka_cluster, admin, create_topic, topic, plan_file, tmp_path
) -> None:
    await create_topic(topic, assignments={0: [0, 1], 1: [1, 2]})
    t0, t1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    plan = plan_file({t0: (0, 2), t1: (1, 0)})
    back = str(tmp_path / "back.json")
    code, stdout, stderr = await run(
        kafka_cluster,
        *("reassign", "execute", "--reassignment-json-file", plan, "--throttle", "50000000"),
        *("--rollback-file", back, "--measure", "0.5", "--yes"),
    )
    assert code == 0, stderr
    assert "MoveRatio" in stdout
    assert "2 of 2 partitions" in stderr
    await at_rest(admin)
    assert await replicas_of(admin, topic) == [(0, 2), (1, 0)]

    told = await kafkas_tool(
        kafka_cluster,
        *("--reassignment-json-file", back, "--execute", "--throttle", "60000000"),
    )
    assert "Successfully started partition reassignments" in told
    await until(lambda: nothing_moves(admin))
    code, stdout, stderr = await run(
        kafka_cluster, "reassign", "verify", "--reassignment-json-file", back
    )
    assert code == 0, stdout + stderr
    assert f"Reassignment of partition {topic}-1 is completed." in stdout
    assert "kafkaclient did not set" in stderr
    await admin.replication_quotas.clear(everyone=True)
    await at_rest(admin)

    replicas = {t0: (0, 2), t1: (1, 0)}
    begun = await admin.reassigner.begin(replicas, 50 * MB)
    assert begun.before == {t0: (0, 1), t1: (1, 2)}
    await until(lambda: nothing_moves(admin))
    told = await kafkas_tool(kafka_cluster, "--reassignment-json-file", plan, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in told
    assert f"Reassignment of partition {topic}-1 is completed." in told

    async def kafkas_tool_has_cleared() -> bool:
        left = await admin.replication_quotas.describe()
        assert all(now.mark is not None for now in left.brokers.values())
        return not left.topics and not any(now.rates for now in left.brokers.values())

    await until(kafkas_tool_has_cleared)
    assert (await admin.reassigner.verify(replicas)).completed
    await at_rest(admin)


async def rates_are(admin, wanted: dict[int, set[int]]) -> bool:
    told = await admin.replication_quotas.describe()
    return wanted == {n: set(now.rates.values()) for n, now in told.brokers.items() if now.rates}


async def test_rates_at_the_defaults_of_all_brokers(kafka_cluster, admin) -> None:
    keys = [*RATE_KEYS, LOG_DIRS_RATE]
    await admin.alter_configs(ConfigResource.broker_defaults(), dict.fromkeys(keys, "7000000"))

    call = DescribeConfigsCall(((ConfigKind.BROKER, ""),), tuple(keys))

    async def are_described() -> bool:
        """By every broker: the command asks any of them."""
        async with admin._operation("describing the defaults", None) as running:
            brokers = (await running.session.metadata(())).brokers
            answers = [await running.session.call(call, each.node_id) for each in brokers]
        found = [{e.name: e.value for e in each.resources[0].entries} for each in answers]
        return found == [dict.fromkeys(keys, "7000000")] * len(answers)

    await until(are_described)
    told = await admin.replication_quotas.describe()
    assert told.defaults == dict.fromkeys(keys, 7 * MB)
    code, stdout, _ = await run(kafka_cluster, "throttle", "show")
    assert (code, stdout.count("broker defaults"), stdout.count("7.0 MB/s")) == (0, 3, 3)
    code, _, stderr = await run(kafka_cluster, "throttle", "clear", "--all", "--yes")
    assert code == 0
    assert "throttles of the broker defaults are removed" in stderr
    await at_rest(admin)


async def test_a_quota_holds_and_can_be_changed(kafka_cluster, admin, create_topic, topic) -> None:
    """Brokers let through ten seconds' worth of the quota at once, then the quota."""
    await create_topic(topic, assignments={0: [0]})
    await fill(kafka_cluster, topic, 60)
    plan = {TopicPartition(topic, 0): (1,)}
    async with admin.throttled(plan, bytes_per_second=MB) as moves:
        began = time.monotonic()
        fast_since = None
        async for progress in moves.progress(every_s=0.5):
            elapsed = time.monotonic() - began
            if fast_since is None:
                assert not progress.finished
                assert progress.bytes_done < (11 + elapsed) * MB * 1.15
                assert progress.sum_replica_lag > 0
            if fast_since is None and elapsed > 5 and progress.bytes_done > 5 * MB:
                assert progress.brokers[0].quota == MB
                assert await moves.set_quota(1000 * MB) == {0: None, 1: None}
                fast_since = elapsed
        assert fast_since is not None
        assert elapsed - fast_since < 30, "within the first quota the rest takes 40 s"
        assert progress.bytes_done == progress.bytes_total > 59 * MB
    await at_rest(admin)
    await expect_replicas(admin, topic, [(1,)])


@runs("docs/how-to/reassign.md")
async def test_the_program_of_the_page(
    kafka_cluster, admin, create_topic, topic, capsys, block
) -> None:
    await create_topic(topic, assignments={0: [0, 1], 1: [1, 0]})
    await fill(kafka_cluster, topic, 1)
    replaced = {
        "localhost:9092": kafka_cluster.bootstrap,
        '"flights"': f'"{topic}"',
        "(2, 3)": "(2, 0)",  # there are three brokers
        "measure_s=5": "measure_s=0.5",
    }
    await block.run(replaced=replaced)["main"]()
    assert len(capsys.readouterr().out.splitlines()) > 1
    await at_rest(admin)
    await expect_replicas(admin, topic, [(1, 2), (2, 0)])


@pytest.mark.full
@pytest.mark.local_cluster
async def test_records_do_not_wait_for_what_the_quota_withholds(
    kafka_cluster, admin, create_topic, topic
) -> None:
    """A new replica that has caught up and may not fetch would hold them up for seconds."""
    partitions = range(20)
    await create_topic(topic, assignments={n: [0, 1] for n in partitions})
    for n in partitions:
        await fill(kafka_cluster, topic, 2, partition=n)
    plan = {TopicPartition(topic, n): (0, 2) for n in partitions}
    load = SteadyLoad(kafka_cluster.bootstrap, topic, rate=400, record_size=1000)
    async with load.running(1.0):
        began = time.monotonic()
        async with admin.throttled(plan, bytes_per_second=3 * MB):
            pass
        assert time.monotonic() - began > 5
    assert load.latency.failed == 0
    assert load.latency.p99_ms < 1000
    await at_rest(admin)


@asynccontextmanager
async def executing(cluster, admin, plan: str, topic: str):
    """``kafkaclient reassign execute``, with its moves begun and crawling, and its announcement
    deleted: a process killed before that keeps others from clearing until it expires, which
    ``test_whatever_change_was_the_last_nothing_is_left`` is about."""
    process = await spawn(
        cluster,
        *("reassign", "execute", "--reassignment-json-file", plan, "--throttle", "1000000"),
        *("--measure", "0", "--yes"),
    )
    try:

        async def crawls() -> bool:
            moving = await admin.list_partition_reassignments()
            defaults = await admin.describe_configs(ConfigResource.broker_defaults())
            begun = any(partition.topic == topic for partition in moving)
            return begun and not any("throttle.setting" in key for key in defaults)

        await until(crawls, seconds=60)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_ctrl_c_undoes_and_a_kill_leaves_nothing_that_is_not_found(
    kafka_cluster, admin, create_topic, topic, plan_file
) -> None:
    await create_topic(topic, assignments={0: [0]})
    await fill(kafka_cluster, topic, 60)  # at the quota this takes 50 s
    plan = plan_file({TopicPartition(topic, 0): (1,)})
    async with executing(kafka_cluster, admin, plan, topic) as process:
        process.send_signal(signal.SIGINT)
        _, stderr = await process.communicate()
        assert process.returncode == 130, stderr
    assert await admin.list_partition_reassignments() == {}
    await at_rest(admin)
    await expect_replicas(admin, topic, [(0,)])

    async with executing(kafka_cluster, admin, plan, topic) as process:
        process.kill()
    await asyncio.sleep(0.5)
    assert not await nothing_throttled(admin)
    code, _, stderr = await run(kafka_cluster, "throttle", "clear")
    assert code == 0
    assert "replicas may still be copied" in stderr
    left = await admin.replication_quotas.describe()
    assert left.brokers[1].mark == (MB, None, None)
    assert left.topics[topic].follower == ((), ("0:1",))
    code, stdout, stderr = await run(
        kafka_cluster, "reassign", "cancel", "--reassignment-json-file", plan, "--yes"
    )
    assert code == 0, stderr
    assert f"for: {topic}-0" in stdout
    await at_rest(admin)
    await expect_replicas(admin, topic, [(0,)])


@pytest.mark.full
@pytest.mark.local_cluster
async def test_the_quota_of_a_move_of_kafkas_tool_can_be_changed(
    kafka_cluster, admin, create_topic, topic, plan_file
) -> None:
    """Brokers count its bytes for ten seconds, so no test of what a quota lets through follows."""
    await create_topic(topic, assignments={0: [0]})
    await fill(kafka_cluster, topic, 15)
    plan = plan_file({TopicPartition(topic, 0): (1,)})
    await kafkas_tool(
        kafka_cluster, *("--reassignment-json-file", plan, "--execute", "--throttle", "100000")
    )
    code, _, stderr = await run(kafka_cluster, "throttle", "set", "--throttle", "900000000")
    assert code == 0, stderr
    assert "broker 1: 900.0 MB/s" in stderr
    await until(lambda: nothing_moves(admin))
    # Its quota comes back, until its own --verify removes it.
    code, _, stderr = await run(kafka_cluster, "throttle", "clear")
    assert (code, "brokers 0,1 are removed" in stderr) == (0, True), stderr
    await until(lambda: rates_are(admin, {0: {100_000}, 1: {100_000}}))
    await kafkas_tool(kafka_cluster, *("--reassignment-json-file", plan, "--verify"))
    await at_rest(admin)


@pytest.mark.full
@pytest.mark.local_cluster
async def test_a_topic_that_stops_while_it_moves_is_told_before(
    kafka_cluster, admin, create_topic, topic
) -> None:
    """Two replicas have to be in sync, of one; of two, as soon as the move begins (KIP-966)."""
    await create_topic(topic, assignments={0: [0]})
    t0 = TopicPartition(topic, 0)
    words = ("reassign", "generate", topic, "--broker-list", "1", "--measure", "0")
    code, _, stderr = await run(kafka_cluster, *words)
    assert (code, f"topic {topic} accepts no records" in stderr) == (0, True), stderr
    await fill(kafka_cluster, topic, 20)
    async with Producer(kafka_cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"before", partition=0)
        begun = await admin.reassigner.begin({t0: (1,)}, 1)

        async def send_until_it_stops() -> None:
            for _ in range(20):  # the leader hears of the move a little later
                async with asyncio.timeout(2):
                    await producer.send_and_wait(topic, b"meanwhile", partition=0)
                await asyncio.sleep(0.1)

        with pytest.raises(TimeoutError):
            await send_until_it_stops()
        assert await admin.reassigner.undo(begun) == {}
        await producer.send_and_wait(topic, b"after", partition=0)
    await at_rest(admin)


class Crash(Exception):
    """What ends a tool."""


async def dies_after(cluster, plan, changes: int) -> bool:
    """Begin a plan with a tool that makes so many changes and then no call any more; whether it
    came to its end."""
    async with Admin(cluster.bootstrap) as doomed:
        assert doomed._running is not None
        session = doomed._running.session
        once, made = session.once, 0

        async def dying(call, node=None):
            nonlocal made
            made += isinstance(call, IncrementalAlterConfigsCall | AlterReassignmentsCall)
            if made > changes:
                raise Crash
            return await once(call, node)

        session.once = dying
        try:
            await doomed.reassigner.begin(plan, MB)
        except Crash:
            return False
        return True


@pytest.mark.full
@pytest.mark.local_cluster
async def test_whatever_change_was_the_last_nothing_is_left(
    kafka_cluster, admin, create_topic, topic
) -> None:
    """An announcement, a topic's lists, the rates of three brokers, the moves, the end of the
    announcement: a crash before and after each. Who cleans up comes when what a dead process
    announced has expired."""
    await create_topic(topic, assignments={0: [0, 1], 1: [1, 2]})
    await fill(kafka_cluster, topic, 25)
    plan = {TopicPartition(topic, 0): (0, 2), TopicPartition(topic, 1): (1, 0)}
    ended = []
    for changes in range(8):
        ended.append(await dies_after(kafka_cluster, plan, changes))
        await asyncio.sleep(0.5)  # until every broker has heard of it
        assert await nothing_throttled(admin) == (changes <= 1)
        async with Admin(kafka_cluster.bootstrap, wall_clock=lambda: time.time() + 300) as later:
            if await admin.list_partition_reassignments():
                await later.replication_quotas.clear()
                assert not await nothing_throttled(admin), "a move has lost its quota"
                assert None in (await later.reassigner.cancel(plan)).values()
            elif changes % 2:
                await later.reassigner.verify(plan)
            else:
                await later.replication_quotas.clear()
        await at_rest(admin)
    assert ended == [False] * 7 + [True]
    everywhere = await admin.describe_configs(ConfigResource.broker_defaults())
    assert not any(key.startswith("kafkaclient.") for key in everywhere)
    told = await kafkas_tool(kafka_cluster, "--list")
    assert "No partition reassignments found." in told


@pytest.mark.full
async def test_a_dead_broker_does_not_stop_the_rest(plan_file) -> None:
    """Killed while it gets a replica: told as stuck; the rest goes on, and nothing stays behind."""
    async with LocalCluster(4) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("weak", replica_assignment=[(0, 3, 1)])
        await admin.create_topic("headless", replica_assignment=[(3, 1, 2)])
        for name in ("goes", "stops"):
            await admin.create_topic(name, replica_assignment=[(0,)])
            await fill(cluster, name, 25)
        goes, stops = TopicPartition("goes", 0), TopicPartition("stops", 0)
        plan = {goes: (1,), stops: (3,)}
        begun = await admin.reassigner.begin(plan, MB)
        await cluster.kill(3)
        async for progress in admin.reassigner.progress(begun.moves, every_s=0.5):
            went, stopped = progress.partitions
            if stopped.stuck == "broker 3 is down":
                assert (await admin.replication_quotas.set_rate(1000 * MB))[1] is None
                if went.done:
                    break
        told = await admin.reassigner.verify(plan)
        assert [each.state.value for each in told.partitions] == ["completed", "in progress"]
        assert "goes" in told.lifted.topics
        await without_a_dead_replica(admin)
        assert await admin.reassigner.cancel(plan) == {stops: None}
        told = await admin.replication_quotas.describe()
        assert told.topics == {}
        assert not any(now.rates or now.mark for now in told.brokers.values())
        await cluster.restart(3)

        async def is_back() -> bool:
            return 3 in (await admin.replication_quotas.describe()).brokers

        await until(is_back)
        await admin.replication_quotas.clear()
        await at_rest(admin)
        assert await replicas_of(admin, "goes") == [(1,)]
        assert await replicas_of(admin, "stops") == [(0,)]


async def without_a_dead_replica(admin) -> None:
    """Broker 3 is down: its replicas go before those that are in sync."""
    weak, headless = TopicPartition("weak", 0), TopicPartition("headless", 0)
    _, proposed = await admin.reassigner.generate(["weak", "headless"], replication_factor=2)
    assert proposed.replicas == {weak: (0, 1), headless: (1, 2)}
    for worse in ({weak: (0, 3)}, {headless: (3, 1)}):
        with pytest.raises(BrokerError, match="--allow-fewer-in-sync"):
            await admin.reassigner.begin(worse, additional=True)
    begun = await admin.reassigner.begin(proposed.replicas, additional=True)
    assert begun.failed == {}

    async def done() -> bool:
        return (await admin.reassigner.verify(proposed.replicas)).completed

    await until(done)


async def cancellations(cluster, admin) -> None:
    foo0, foo1 = TopicPartition("foo", 0), TopicPartition("foo", 1)
    reassigner, quotas = admin.reassigner, admin.replication_quotas
    # testCancellation
    await fill(cluster, "foo", 12, partition=1)
    plan = {foo0: (0, 3, 4), foo1: (1, 2, 4)}
    await reassigner.begin(plan, 1)
    told = await reassigner.verify(plan, preserve_throttles=True)
    assert [each.replicas for each in told.partitions] == [(0, 3, 4, 1), (1, 2, 4, 3)]
    assert await reassigner.cancel(plan) == {foo0: None, foo1: None}
    assert await reassigner.cancel(plan) == {}
    await at_rest(admin)
    assert [set(nodes) for nodes in await replicas_of(admin, "foo")] == [{0, 1, 3}, {1, 2, 3}]
    # testCancellationWithAddingReplicaInIsr: 2 is in sync before the whole set is.
    plan = {foo0: (0, 2, 4)}
    await reassigner.begin(plan, 1)
    await quotas.set_rate(1000 * MB, [0, 1, 2, 3])

    async def broker_2_is_in_sync() -> bool:
        return 2 in (await admin.describe_topic("foo")).partitions[0].isr

    await until(broker_2_is_in_sync)
    assert await reassigner.cancel(plan) == {foo0: None}
    await at_rest(admin)
    assert [set(nodes) for nodes in await replicas_of(admin, "foo")] == [{0, 1, 3}, {1, 2, 3}]


@pytest.mark.full
async def test_kafkas_own_tests() -> None:
    """ReassignPartitionsCommandTest on its five brokers; directories are left out."""
    racks = ["rack0", "rack0", "rack1", "rack1", "rack1"]
    foo0, bar0 = TopicPartition("foo", 0), TopicPartition("bar", 0)
    baz2 = TopicPartition("baz", 2)
    async with LocalCluster(5, racks=racks) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("foo", replica_assignment=[(0, 1, 2), (1, 2, 3)])
        await admin.create_topic("bar", replica_assignment=[(3, 2, 1)])
        await admin.create_topic("baz", replica_assignment=[(1, 0, 2), (2, 0, 1), (0, 2, 1)])
        await asyncio.sleep(2)  # until every broker has heard of them
        reassigner, quotas = admin.reassigner, admin.replication_quotas

        async def rates() -> dict[int, int]:
            told = (await quotas.describe()).brokers
            return {node: now.mark.rate for node, now in told.items() if now.mark}

        async def rates_are(rate: int | None, brokers=(0, 1, 2, 3)) -> None:
            wanted = {} if rate is None else dict.fromkeys(brokers, rate)

            async def they_are() -> bool:
                return await rates() == wanted

            await until(they_are, seconds=10)

        # testReassignment
        plan = {foo0: (0, 1, 3), bar0: (3, 2, 0)}
        await reassigner.begin(plan)
        await until(lambda: nothing_moves(admin))
        assert (await reassigner.verify(plan)).completed
        # testThrottledReassignment, and back
        plan = {foo0: (0, 3, 2), baz2: (3, 2, 1)}
        await reassigner.begin(plan, 300_000)
        await rates_are(300_000)
        await until(lambda: nothing_moves(admin))
        assert (await reassigner.verify(plan, preserve_throttles=True)).completed
        await rates_are(300_000)
        assert (await reassigner.verify(plan)).completed
        await at_rest(admin)
        # testAlterReassignmentThrottle
        await fill(cluster, "foo", 12)
        plan = {foo0: (0, 3, 1), baz2: (0, 2, 1)}
        await reassigner.begin(plan, 1)
        await rates_are(1)
        await reassigner.begin(plan, 300_000_000, additional=True)
        await rates_are(300_000_000)
        await until(lambda: nothing_moves(admin))
        assert (await reassigner.verify(plan)).completed
        await at_rest(admin)
        await cancellations(cluster, admin)


async def test_cancel_tells_whose_order_may_have_changed(
    kafka_cluster, admin, create_topic, topic
) -> None:
    await create_topic(topic, assignments={0: [0, 1], 1: [0, 1]})
    for partition in (0, 1):
        await fill(kafka_cluster, topic, 25, partition=partition)
    plan = {TopicPartition(topic, 0): (1, 2), TopicPartition(topic, 1): (2,)}
    await admin.reassigner.begin(plan, 1, allow_fewer_in_sync=True)
    code, stdout, stderr = await run(kafka_cluster, "reassign", "cancel", "--all", "--yes")
    assert code == 0, stderr
    assert f"{topic}-1" in stdout
    assert f"note: the replicas of {topic}-0 may be in another order" in stderr
    await at_rest(admin)
    await expect_replicas(admin, topic, [(1, 0), (0, 1)])


@pytest.mark.full
async def test_a_broker_that_starts_empty() -> None:
    """KIP-73, question 2: what it lost comes back at the quota, from its first second on."""
    async with LocalCluster(3) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", replica_assignment=[(0, 2)])
        await fill(cluster, "t", 40)
        await cluster.terminate(2)
        await asyncio.to_thread(shutil.rmtree, cluster.log_dir(2) / "t-0")
        quotas = admin.replication_quotas

        async def is_fenced() -> bool:
            return 2 not in [broker.node_id for broker in (await admin.describe_cluster()).brokers]

        await until(is_fenced)
        assert (await quotas.bootstrap([2], MB)).keys() == {2}
        await cluster.start_broker(2)

        async def is_throttled() -> bool:
            return not await quotas.bootstrap([2], MB)

        await until(is_throttled)
        await asyncio.sleep(5)
        ((partition, lag),) = (await quotas.behind([2])).items()
        assert partition == TopicPartition("t", 0)
        assert lag is not None
        assert 0 < lag <= 400
        assert (await quotas.clear()).needed_topics == ("t",)
        await quotas.set_rate(1000 * MB)

        async def has_caught_up() -> bool:
            return not await quotas.behind([2])

        await until(has_caught_up)
        await quotas.clear()
        await at_rest(admin)
