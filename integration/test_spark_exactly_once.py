"""Streaming writes with exactlyOnce on real Spark and real brokers, with faults.

The table in docs/concepts/spark-exactly-once.md names the test of each fault."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition

from integration.transaction_stories import read, reader
from kafkaclient import Producer
from kafkaclient.admin import Admin, TxnState
from kafkaclient.errors import BrokerError
from kafkaclient.spark.ledger import make_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PARTITIONS = 6  # as transaction_stories reads
KILLS = int(os.environ.get("KAFKACLIENT_KILLS", "3"))

pytestmark = [pytest.mark.timeout(600 + 90 * KILLS), pytest.mark.full]
VICTIM = Path(__file__).with_name("spark_victim.py")


class Run:
    """A process with Spark and the query, in a session of its own."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as output:
            command = [sys.executable, str(VICTIM), *arguments]
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def batches(self) -> int:
        """How many times the process has told of a batch."""
        return sum(line.startswith("batch") for line in self.said().splitlines())

    async def another_batch(self) -> None:
        """Returns when the process tells of another batch, or has ended."""
        begun = self.batches()
        while self.is_running and self.batches() == begun:
            await asyncio.sleep(0.1)

    async def ended(self) -> int:
        """The exit status."""
        async with asyncio.timeout(300 + 20 * KILLS):
            while self.is_running:
                await asyncio.sleep(0.1)
        return self._process.returncode

    def kill(self) -> None:
        """The driver and its JVM. Python workers, a commit's too, find out by themselves."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Story:
    """A query that copies a topic to another, by any number of runs."""

    def __init__(self, cluster: Any, topic: str, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.source, self.sink, self.other = f"{topic}-in", f"{topic}-out", f"{topic}-other"
        self.checkpoint = directory / "checkpoint"
        self.rows = 0
        self._runs: list[Run] = []

    def run(
        self,
        life: int = 0,
        *,
        checkpoint: Path | None = None,
        sink: str | None = None,
        prefix: str | None = None,
    ) -> Run:
        arguments = [self.cluster.bootstrap, self.source, sink or self.sink]
        arguments += [str(checkpoint or self.checkpoint), str(life)]
        arguments += [prefix or f"victim-{self.source}"]
        self._runs.append(Run(self.directory / f"{len(self._runs)}.log", *arguments))
        return self._runs[-1]

    async def runs_to_its_end(self, life: int = 0) -> None:
        run = self.run(life)
        assert await run.ended() == 0, run.said()[-5000:]

    async def send(self, count: int) -> None:
        async with Producer(self.cluster.bootstrap) as producer:
            for n in range(self.rows, self.rows + count):
                await producer.send(self.source, b"%d" % n)
        self.rows += count

    async def has_each_row_once(self, *, ledgers: int = 1) -> None:
        """And nothing is left open."""
        expected = sorted(b"%d" % n for n in range(self.rows))
        assert await read(self.cluster.bootstrap, self.sink) == expected
        async with Admin(self.cluster.bootstrap) as admin:
            prefix = f"victim-{self.source}"
            assert await admin.list_transactions(prefix, states=[TxnState.ONGOING]) == []
            topics = [name for name in await admin.list_topics() if name.startswith(prefix)]
            assert len(topics) == ledgers

    def kill_all(self) -> None:
        for run in self._runs:
            run.kill()


@pytest.fixture
async def story(
    kafka_cluster: Any, topic: str, create_topic: Any, tmp_path: Path
) -> AsyncIterator[Story]:
    found = Story(kafka_cluster, topic, tmp_path)
    for name in (found.source, found.sink, found.other):
        await create_topic(name, PARTITIONS, 3)
    yield found
    found.kill_all()


async def a_batch_is_writing(story: Story, run: Run) -> None:
    """Returns when an open transaction has written rows to the sink, or the process has ended.

    The high watermarks are read first: a last stable offset that is lower belongs to a transaction
    that is still open, not to one that was committed between the two requests.
    """
    partitions = [TopicPartition(story.sink, number) for number in range(PARTITIONS)]
    bootstrap = story.cluster.bootstrap
    async with (
        reader(bootstrap, "read_uncommitted") as everything,
        reader(bootstrap, "read_committed") as stable,
    ):
        while run.is_running:
            written = await everything.end_offsets(partitions)
            ended = await stable.end_offsets(partitions)
            if any(ended[tp] < written[tp] for tp in partitions):
                return
            await asyncio.sleep(0.005)


# --- processes are killed -------------------------------------------------------------------------


async def test_drivers_and_tasks_are_killed(story) -> None:
    """Each run has another number of tasks, the first attempt of some tasks fails. The first kill
    comes while a batch is writing, the others at random moments."""
    await story.send(2500 * (KILLS + 1))  # so that every run finds some
    rng, interrupted = Random(7), 0
    for life in range(KILLS):
        run = story.run(life)
        await run.another_batch()
        if life == 0:
            await a_batch_is_writing(story, run)
        else:
            await asyncio.sleep(rng.uniform(0, 3))
        interrupted += run.is_running
        run.kill()
    assert interrupted == KILLS
    await story.runs_to_its_end(KILLS)
    await story.has_each_row_once()
    uncommitted = await read(story.cluster.bootstrap, story.sink, "read_uncommitted")
    # The batch of the first kill was written twice, and one of the two was aborted.
    assert len(uncommitted) > story.rows


@pytest.mark.local_cluster
async def test_brokers_are_killed(story) -> None:
    """One after the other, each while a batch is on its way. The query does not even end."""
    await story.send(500 * (3 + 6 * KILLS))
    rng, run, interrupted = Random(5), story.run(), 0
    for number in range(KILLS):
        await run.another_batch()
        await asyncio.sleep(rng.uniform(0, 2))
        interrupted += run.is_running
        broker = story.cluster.brokers[number % len(story.cluster.brokers)]
        await story.cluster.kill(broker)
        await asyncio.sleep(rng.uniform(1, 5))
        await story.cluster.start_broker(broker)
    assert interrupted == KILLS, run.said()[-5000:]
    assert await run.ended() == 0, run.said()[-5000:]
    await story.has_each_row_once()


@pytest.mark.local_cluster
async def test_transaction_coordinators_move(story) -> None:
    """Each partition of ``__transaction_state`` leaves its leader, again and again, until the query
    has ended."""
    await story.send(500 * (3 + 2 * KILLS))
    brokers, moves = story.cluster.brokers, 0
    run = story.run()
    async with Admin(story.cluster.bootstrap) as admin:
        await run.another_batch()
        while run.is_running:
            found = await admin.describe_topic("__transaction_state")
            targets = {
                TopicPartition(found.name, partition.partition): [
                    *[broker for broker in brokers if broker != partition.leader],
                    *[partition.leader] * (len(partition.replicas) < len(brokers)),
                ]
                for partition in found.partitions
            }
            await admin.alter_partition_reassignments(targets)
            while await admin.list_partition_reassignments():
                await asyncio.sleep(0.1)
            moves += 1
            await asyncio.sleep(1)
        await admin.alter_partition_reassignments({tp: [*brokers] for tp in targets})
    assert moves > KILLS
    assert await run.ended() == 0, run.said()[-5000:]
    await story.has_each_row_once()


# --- the ledger -----------------------------------------------------------------------------------


async def test_ledgers_that_may_lose_decisions(kafka_cluster, topic, create_topic, caplog) -> None:
    """One that no broker could write is not created. One that is there is checked once."""
    await create_topic(f"{topic}-old", 1, 1)
    async with Admin(kafka_cluster.bootstrap) as admin:
        with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
            await make_ledger(admin, f"{topic}-new", replicas=None, min_insync=4)
        assert f"{topic}-new" not in await admin.list_topics()
        for _ in range(2):
            await make_ledger(admin, f"{topic}-old", replicas=None, min_insync=None)
            await make_ledger(admin, f"{topic}-new", replicas=None, min_insync=3)
    few, deleted = (each for each in caplog.messages if each.startswith("the ledger"))
    assert few.startswith(f"the ledger {topic}-old has 1 replicas, not 3")
    assert deleted.startswith(f"the ledger {topic}-old has cleanup.policy=delete")


# --- the checkpoint -------------------------------------------------------------------------------


async def test_a_checkpoint_is_put_back(story) -> None:
    """A backup from before the last batch, which is planned again with more rows: the query fails
    and says what to do, and with the newest checkpoint it goes on, each row once."""
    await story.send(700)
    await story.runs_to_its_end()
    checkpoint, newest = story.checkpoint, story.directory / "newest"
    batches = sorted(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
    last = batches[-1]
    assert last > 0
    shutil.copytree(checkpoint, newest)
    for folder in ("offsets", "commits"):
        (checkpoint / folder / str(last)).unlink()
        (checkpoint / folder / f".{last}.crc").unlink()
    await story.send(100)
    run = story.run()
    assert await run.ended() != 0
    for part in (
        "CheckpointMismatchError",
        f"batch {last} of this query was decided before",
        f'up to the end offsets {{"{story.source}"',
        "Restore the newest checkpoint",
    ):
        assert part in run.said()
    rows = await read(story.cluster.bootstrap, story.sink)
    assert rows == sorted(b"%d" % n for n in range(700))
    shutil.rmtree(checkpoint)
    newest.rename(checkpoint)
    await story.runs_to_its_end()
    await story.has_each_row_once()


async def _left_behind(story: Story, rows: int, more: int) -> Path:
    """A copy of the checkpoint after ``rows``. The query has then written ``more`` rows."""
    await story.send(rows)
    await story.runs_to_its_end()
    copy = shutil.copytree(story.checkpoint, story.directory / "copy")
    await story.send(more)
    await story.runs_to_its_end()
    return copy


async def test_an_older_checkpoint_is_put_back(story) -> None:
    """It is several batches old: nothing is written."""
    run = story.run(checkpoint=await _left_behind(story, 400, 1200))
    assert await run.ended() != 0
    assert "CheckpointMismatchError" in run.said()
    assert "of this query has been decided" in run.said()
    await story.has_each_row_once()


REFUSALS = ("CheckpointMismatchError", "ProducerFencedError", "TransactionLostError")
# "Multiple streaming queries are concurrently using ...", or one began while the other checked
BY_SPARK = ("Concurrent", "concurrent", "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY")


async def _both_run(story: Story, checkpoints: tuple[Path, Path]) -> None:
    """Two processes with one query id. A process that ends badly says why."""
    runs = [story.run(life, checkpoint=path) for life, path in enumerate(checkpoints)]
    for run in runs:
        if await run.ended() != 0:
            assert any(each in run.said() for each in REFUSALS + BY_SPARK), run.said()[-5000:]


async def test_two_queries_have_copies_of_a_checkpoint(story) -> None:
    """They run at the same time, with the same topic."""
    await story.send(300)
    await story.runs_to_its_end()
    copy = shutil.copytree(story.checkpoint, story.directory / "copy")
    await story.send(500 * (2 + KILLS))
    await _both_run(story, (story.checkpoint, copy))
    # The newest of the two goes on.
    newest = max((story.checkpoint, copy), key=lambda path: len([*(path / "commits").iterdir()]))
    run = story.run(checkpoint=newest)
    assert await run.ended() == 0, run.said()[-5000:]
    await story.has_each_row_once()


async def test_two_queries_have_one_checkpoint(story) -> None:
    """They run at the same time, in two drivers."""
    await story.send(500 * (2 + KILLS))
    await _both_run(story, (story.checkpoint, story.checkpoint))
    await story.runs_to_its_end()
    await story.has_each_row_once()


async def test_a_copied_checkpoint_with_another_topic(story) -> None:
    """The batch that the first query has decided is refused, and no row of it is visible."""
    run = story.run(checkpoint=await _left_behind(story, 300, 300), sink=story.other)
    assert await run.ended() != 0
    assert f"it was decided for topic {story.sink} and is for topic {story.other}" in run.said()
    assert await read(story.cluster.bootstrap, story.other) == []
    await story.has_each_row_once()


async def test_a_copied_checkpoint_with_another_prefix(story) -> None:
    """It was copied between two batches. The query has a ledger of its own, and writes the rows
    that came later once; what the first query has written stays as it is."""
    copy = await _left_behind(story, 300, 300)
    run = story.run(checkpoint=copy, sink=story.other, prefix=f"another-{story.source}")
    assert await run.ended() == 0, run.said()[-5000:]
    rows = await read(story.cluster.bootstrap, story.other)
    assert rows == sorted(b"%d" % n for n in range(300, 600))
    await story.has_each_row_once()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk))
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted: this takes root")
    yield disk
    subprocess.run(("umount", "--lazy", str(disk)), check=True)


async def test_the_disk_of_the_checkpoint_is_full(small_disk, story) -> None:
    """The query ends, and says why; when there is space again, it goes on, each row once."""
    story.checkpoint = small_disk / "checkpoint"
    await story.send(500 * (4 + KILLS))
    run = story.run()
    await run.another_batch()
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    assert await run.ended() != 0
    assert "No space left on device" in run.said()
    (small_disk / "filler").unlink()
    await story.runs_to_its_end()
    await story.has_each_row_once()


async def test_two_queries_have_one_prefix(story) -> None:
    """And a checkpoint each. Neither aborts what the other one has open."""
    await story.send(500 * (2 + KILLS))
    runs = [story.run(), story.run(checkpoint=story.directory / "second", sink=story.other)]
    for run in runs:
        assert await run.ended() == 0, run.said()[-5000:]
    await story.has_each_row_once(ledgers=2)
    rows = await read(story.cluster.bootstrap, story.other)
    assert rows == sorted(b"%d" % n for n in range(story.rows))
