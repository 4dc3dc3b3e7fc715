"""The examples, run as their users run them, and what they wrote read back by another client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer

from examples.flights import flights
from experiments.readback import read_back
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.streams import Role, describe_application

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager


EXAMPLES = Path(__file__).parents[1] / "examples"
EXIT_S = 60.0
BUSY = (  # how warnings of the client begin
    "still waiting for ",
    "the wait for ",
    "the event loop stood still ",
    "metadata could not be fetched (1 time in a row): no answer",
    "the cluster answers again: ",
)
SESSION_S = 45.0  # default session.timeout.ms, after which a killed member loses its partitions

pytestmark = pytest.mark.timeout(180)

Record = tuple[bytes | None, bytes]


def running(example: str, *arguments: str) -> AbstractAsyncContextManager[Process]:
    return python(str(EXAMPLES / example), *arguments)


@asynccontextmanager
async def python(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def finished(process: Process) -> tuple[str, str]:
    async with asyncio.timeout(EXIT_S):
        output, errors = await process.communicate()
    return output.decode(), errors.decode()


def complaints(errors: str) -> list[str]:
    """The lines on stderr that do not only tell of a machine that is busy."""
    return [line for line in errors.splitlines() if not line.startswith(BUSY)]


# --- produce.py --------------------------------------------------------------------------------


async def test_script(kafka_cluster, topic) -> None:
    async with running("produce.py", kafka_cluster.bootstrap, topic, "--count", "500") as process:
        output, errors = await finished(process)
    assert (process.returncode, complaints(errors)) == (0, [])
    lines = re.findall(rf"^{topic}-\d+: (\d+) records$", output, re.MULTILINE)
    assert sum(map(int, lines)) == 500
    sent: list[Record] = [
        (
            f"sensor-{number % 10}".encode(),
            json.dumps({"sensor": number % 10, "reading": number}).encode(),
        )
        for number in range(500)
    ]
    result = await read_back(kafka_cluster.bootstrap, topic, sent)
    assert result.is_exact, result


async def test_script_with_a_bad_address() -> None:
    """A bad address is one line on stderr, not a traceback."""
    async with running("produce.py", "no host", "readings") as process:
        _, errors = await finished(process)
    assert process.returncode == 1
    assert errors.startswith("not published: bootstrap_servers='no host' is not accepted")
    assert "Traceback" not in errors


# --- service.py --------------------------------------------------------------------------------


async def address(process: Process) -> str:
    """Where the service says that it listens."""
    assert process.stderr is not None
    async with asyncio.timeout(EXIT_S):
        while line := (await process.stderr.readline()).decode():
            if match := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                return match[1]
    pytest.fail("the service did not start")


class Visitors:
    """Keep the service busy until it goes away, and remember what it accepted."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url
        self.accepted: dict[str, list[Record]] = {"orders": [], "clicks": []}

    async def visit(self, name: str) -> None:
        for number in range(1_000_000):
            for kind in ("orders", "clicks"):
                body = json.dumps({kind: f"{name}-{number}"}).encode()
                try:
                    status = await self._post(f"/{kind}?customer={name}", body)
                except aiohttp.ClientError:
                    return  # the service has gone, whether or not it took this one
                key = name.encode() if kind == "orders" else None
                assert status == (HTTPStatus.CREATED if key else HTTPStatus.ACCEPTED)
                self.accepted[kind].append((key, body))

    async def _post(self, path: str, body: bytes) -> int:
        async with self._session.post(self.url + path, data=body) as answer:
            await answer.read()
            return answer.status

    async def accept(self, more: int) -> None:
        """Wait until ``more`` further clicks are accepted."""
        enough = len(self.accepted["clicks"]) + more
        while len(self.accepted["clicks"]) < enough:
            await asyncio.sleep(0.01)


async def until(session: aiohttp.ClientSession, url: str, words: str) -> None:
    """Ask for the page until it has these words."""
    async with asyncio.timeout(EXIT_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if words in await answer.text():
                        return
            await asyncio.sleep(0.05)


@pytest.mark.local_cluster
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_the_web_service_delivers_what_it_accepted(
    kafka_cluster, topic, create_topic, tmp_path, workers
) -> None:
    """A broker killed, and SIGTERM in the middle of its work, lose no request that was answered."""
    names = {kind: f"{topic}-{kind}" for kind in ("orders", "clicks")}
    for name in names.values():
        await create_topic(name, 6, 3, {"min.insync.replicas": "2"})
    source = (EXAMPLES / "service.py").read_text().replace('"confirmations"', f'"{topic}"')
    for kind, name in names.items():
        source = source.replace(f'"{kind}"', f'"{name}"')
    (tmp_path / "service.py").write_text(source)
    service = python(
        *("-m", "uvicorn", "service:app", "--port", "0", "--workers", str(workers)),
        *("--timeout-graceful-shutdown", "20"),
        cwd=tmp_path,
        KAFKA_BOOTSTRAP=kafka_cluster.bootstrap,
    )
    async with service as process, aiohttp.ClientSession() as session:
        visitors = Visitors(session, await address(process))
        await until(session, visitors.url + "/ready", "healthy")
        async with asyncio.timeout(2 * EXIT_S), asyncio.TaskGroup() as group:
            for name in ("ann", "bob", "cyd", "dan"):
                group.create_task(visitors.visit(name))
            await visitors.accept(100)
            await kafka_cluster.kill(1)
            await visitors.accept(100)
            await kafka_cluster.heal()
            await visitors.accept(100)
            if workers == 1:
                await until(session, visitors.url + "/metrics", "orders_confirmed_total 1")
            process.send_signal(signal.SIGTERM)
        _, errors = await finished(process)
    assert process.returncode in (0, -signal.SIGTERM), errors  # uvicorn ends by the signal itself
    assert "ERROR" not in errors
    ended = errors.count("Application shutdown complete")
    if workers > 1:  # one may be ready, and the other have hardly begun
        assert ended == errors.count("Application startup complete")
    assert 1 <= ended <= workers
    for kind, accepted in visitors.accepted.items():
        result = await read_back(kafka_cluster.bootstrap, names[kind], accepted)
        assert (result.lost, result.duplicated) == (0, 0), result
        # One request of each visitor may have been cut off after its record was taken.
        assert result.unexpected <= 4, result


# --- consume_transform_produce.py ----------------------------------------------------------------


@pytest.mark.full
async def test_each_order_gets_one_invoice(kafka_cluster, topic) -> None:
    """Members of the group are killed and started again while they work: nothing is billed twice,
    nothing is left out."""
    source, target = f"{topic}-in", f"{topic}-out"

    async def order(first: int, end: int) -> None:
        async with Producer(kafka_cluster.bootstrap, linger_ms=5) as producer:
            orders = [{"order": n, "price": 3, "items": n % 5 + 1} for n in range(first, end)]
            await (await producer.send_many(source, [json.dumps(o).encode() for o in orders]))
            await producer.partitions_for(target)

    await order(0, 3000)
    arguments = [kafka_cluster.bootstrap, source, target, "--group", topic]

    def billing(name: str) -> AbstractAsyncContextManager[Process]:
        return running("consume_transform_produce.py", *arguments, "--id", name)

    async with (
        reading(kafka_cluster.bootstrap, target) as seen,
        asyncio.timeout(SESSION_S + EXIT_S),
    ):
        async with billing("a"):
            await seen(300)  # killed at the end of the block
        async with billing("b") as terminated, billing("a"):
            async with Admin(kafka_cluster.bootstrap) as admin:
                while len((await admin.describe_group(topic)).members) < 2:
                    await asyncio.sleep(0.1)
            await order(3000, 6000)
            await seen(4000)
            terminated.send_signal(signal.SIGTERM)
            assert await terminated.wait() == 0
            invoices = await seen(6000)
    assert sorted(json.loads(value)["order"] for value in invoices) == list(range(6000))


@asynccontextmanager
async def reading(bootstrap: str, topic: str) -> AsyncIterator[Callable[[int], Awaitable[list]]]:
    """``await seen(n)``: all committed values of the topic, once there are at least n."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    values: list[bytes] = []

    async def seen(least: int) -> list[bytes]:
        while len(values) < least:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                values.extend(record.value for record in records)
        return values

    try:
        yield seen
    finally:
        await consumer.stop()


# --- word_count.py, flight_delays.py -------------------------------------------------------------


@pytest.mark.full
async def test_words_are_counted_by_two_processes(kafka_cluster, topic, tmp_path) -> None:
    """The second one takes its share, and goes on alone when the first is killed."""
    topics = {topic, f"{topic}-counts", f"{topic}-words-repartition"}
    arguments = [kafka_cluster.bootstrap, topic, "--application", topic]
    arguments += ["--state-dir", str(tmp_path), "--partitions", "2"]
    lines = [b"The quick brown fox", b"the lazy dog", b"The end"] * 100
    async with (
        Producer(kafka_cluster.bootstrap) as producer,
        Admin(kafka_cluster.bootstrap) as admin,
        asyncio.timeout(EXIT_S),
        running("word_count.py", *arguments, "--instance", "b") as second,
    ):
        while topics - set(await admin.list_topics()):
            await asyncio.sleep(0.1)
        async with (
            running("word_count.py", *arguments) as first,
            reading(kafka_cluster.bootstrap, f"{topic}-counts") as seen,
        ):
            await (await producer.send_many(topic, lines))
            await seen(900)
            while True:
                found = await describe_application(admin, topic)
                if found.is_balanced and len(found.members) == 2:
                    break
                await asyncio.sleep(0.2)
            roles = [[copy.role for copy in member.copies] for member in found.members]
            assert [kinds.count(Role.ACTIVE) for kinds in roles] == [2, 2]
            assert sum(kinds.count(Role.STANDBY) for kinds in roles) == 2
            first.kill()
            await (await producer.send_many(topic, lines))
            counts = await seen(1800)
        assert (counts.count(b"600"), counts.count(b"200"), len(counts)) == (1, 7, 1800)
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0


@pytest.mark.full
async def test_delays_are_added_up(kafka_cluster, topic, create_topic, tmp_path) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    for name in (source, target):
        await create_topic(name, 2)
    arguments = [kafka_cluster.bootstrap, source, target, "--application", topic]
    arguments += ["--state-dir", str(tmp_path), "--load", "2000"]
    expected = Counter()
    for carrier, value in flights(2000, keyed=True):
        expected[carrier] += json.loads(value)["dep_delay"] or 0
    async with (
        reading(kafka_cluster.bootstrap, target) as seen,
        asyncio.timeout(EXIT_S),
        running("flight_delays.py", *arguments) as process,
    ):
        totals = [json.loads(value) for value in await seen(2000)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert sum(total["flights"] + total["cancelled"] == 1 for total in totals) == len(expected)
    assert {total["minutes"] for total in totals} >= set(expected.values())
