"""Streaming writes with exactlyOnce on real Spark and real brokers, killed and restarted."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition

from integration.transaction_stories import read, reader
from kafkaclient import Producer
from kafkaclient.admin import Admin, TxnState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PARTITIONS = 6  # as transaction_stories reads
KILLS = int(os.environ.get("KAFKACLIENT_KILLS", "3"))

pytestmark = [pytest.mark.timeout(600 + 60 * KILLS), pytest.mark.full]
VICTIM = Path(__file__).with_name("spark_victim.py")


def start(bootstrap: str, source: str, sink: str, checkpoint: Path, run: int) -> Any:
    """A process with Spark and the query, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, str(VICTIM), bootstrap, source, sink, str(checkpoint), str(run)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: Any) -> None:
    """The driver and its JVM. Python workers, a commit's too, find out by themselves."""
    os.killpg(process.pid, signal.SIGKILL)
    with process:  # waits for it, and closes its pipe
        pass


async def a_batch_is_writing(bootstrap: str, sink: str, process: Any) -> None:
    """Returns when an open transaction has written rows to the sink, or the process has ended.

    The high watermarks are read first: a last stable offset that is lower belongs to a transaction
    that is still open, not to one that was committed between the two requests.
    """
    partitions = [TopicPartition(sink, number) for number in range(PARTITIONS)]
    async with (
        reader(bootstrap, "read_uncommitted") as everything,
        reader(bootstrap, "read_committed") as stable,
    ):
        while process.poll() is None:
            written = await everything.end_offsets(partitions)
            ended = await stable.end_offsets(partitions)
            if any(ended[tp] < written[tp] for tp in partitions):
                return
            await asyncio.sleep(0.005)


async def test_drivers_and_tasks_are_killed(
    kafka_cluster: Any,
    topic: str,
    create_topic: Callable[..., Awaitable[None]],
    tmp_path: Path,
) -> None:
    """Each row is there once for read-committed readers, and nothing is left open. Each life has
    another number of tasks, the first attempt of some tasks fails. The first kill comes while a
    batch is writing, the others at random moments."""
    source, sink = f"{topic}-in", f"{topic}-out"
    await create_topic(source, PARTITIONS)
    await create_topic(sink, PARTITIONS)
    rows = 2500 * (KILLS + 1)  # so that every life finds some
    async with Producer(kafka_cluster.bootstrap) as producer:
        for n in range(rows):
            await producer.send(source, b"%d" % n)
    rng, interrupted = Random(7), 0
    for run in range(KILLS):
        process = start(kafka_cluster.bootstrap, source, sink, tmp_path, run)
        try:
            for line in process.stdout:
                if line.startswith("batch"):
                    break
            if run == 0:
                await a_batch_is_writing(kafka_cluster.bootstrap, sink, process)
            else:
                time.sleep(rng.uniform(0, 3))  # noqa: ASYNC251 - nothing else is going on
            interrupted += process.poll() is None
        finally:
            kill(process)
    assert interrupted == KILLS
    process = start(kafka_cluster.bootstrap, source, sink, tmp_path, KILLS)
    try:
        said = process.communicate(timeout=300 + 20 * KILLS)[0]
        assert process.returncode == 0, said[-3000:]
    finally:
        if process.poll() is None:
            kill(process)
    assert await read(kafka_cluster.bootstrap, sink) == sorted(b"%d" % n for n in range(rows))
    async with Admin(kafka_cluster.bootstrap, limits=None) as admin:
        assert await admin.list_transactions("victim-", states=[TxnState.ONGOING]) == []
        ends = [t for t in await admin.list_topics() if t.startswith("victim-")]
        assert len(ends) == 1  # the ledger
    uncommitted = await read(kafka_cluster.bootstrap, sink, "read_uncommitted")
    # The batch of the first kill was written twice, and one of the two was aborted.
    assert len(uncommitted) > rows


async def test_a_checkpoint_is_put_back(
    kafka_cluster: Any,
    topic: str,
    create_topic: Callable[..., Awaitable[None]],
    tmp_path: Path,
) -> None:
    """A backup from before the last batch, which is planned anew with more rows: the query fails
    and says what to do, and with the newest checkpoint it goes on, each row once."""
    source, sink = f"{topic}-in", f"{topic}-out"
    await create_topic(source, PARTITIONS)
    await create_topic(sink, PARTITIONS)
    checkpoint, newest = tmp_path / "checkpoint", tmp_path / "newest"

    async def send(numbers: range) -> None:
        async with Producer(kafka_cluster.bootstrap) as producer:
            for n in numbers:
                await producer.send(source, b"%d" % n)

    def run() -> tuple[int, str]:
        arguments = (kafka_cluster.bootstrap, source, sink, str(checkpoint), "0")
        done = subprocess.run(
            [sys.executable, str(VICTIM), *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    await send(range(700))
    code, said = run()
    assert code == 0, said[-3000:]
    batches = sorted(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
    last = batches[-1]
    assert last > 0
    shutil.copytree(checkpoint, newest)
    for folder in ("offsets", "commits"):
        (checkpoint / folder / str(last)).unlink()
        (checkpoint / folder / f".{last}.crc").unlink()
    await send(range(700, 800))
    code, said = run()
    assert code != 0
    assert "CheckpointMismatchError" in said, said[-3000:]
    for part in (
        f"batch {last} of this query was decided before",
        f'up to the end offsets {{"{source}"',
        "Restore the newest checkpoint",
    ):
        assert part in said
    rows = await read(kafka_cluster.bootstrap, sink)
    assert rows == sorted(b"%d" % n for n in range(700))

    shutil.rmtree(checkpoint)
    newest.rename(checkpoint)
    code, said = run()
    assert code == 0, said[-3000:]
    rows = await read(kafka_cluster.bootstrap, sink)
    assert rows == sorted(b"%d" % n for n in range(800))
    async with Admin(kafka_cluster.bootstrap, limits=None) as admin:
        assert await admin.list_transactions("victim-", states=[TxnState.ONGOING]) == []
