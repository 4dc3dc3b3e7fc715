"""What becomes of running clients when tickets, keys, caches and the KDC change or go."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Consumer, Producer, SyncProducer
from kafkaclient.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.full, pytest.mark.timeout(240), pytest.mark.local_cluster]


async def _repeat(seconds: float, call: Callable[[], Awaitable[Any]], pause_s: float = 0.05) -> int:
    """Call again and again; how often."""
    end, calls = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        await call()
        calls += 1
        await asyncio.sleep(pause_s)
    return calls


def _tickets(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def test_two_principals_in_one_process(login, alice, realm, topic, tmp_path) -> None:
    cache = f"{tmp_path}/cache"
    realm.kinit(cache)
    before = realm.served()
    async with (
        Producer(**login("SHORT", **alice)) as first,
        Producer(**login("SHORT", sasl_kerberos_ticket_cache=cache)) as second,
    ):
        await _repeat(8, lambda: first.send_and_wait(topic, b"v"))
        await _repeat(4, lambda: second.send_and_wait(topic, b"v"))
    assert set(realm.served() - before) == {"alice", "bob"}


async def test_a_kdc_that_is_away_longer_than_a_ticket(
    login, alice, realm, topic, monkeypatch
) -> None:
    """Producers, a consumer and an admin client go on when it is back; no call fails for it."""
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="9s"))
    options, numbers = login("SHORT", **alice), iter(range(1_000_000))
    read: list[bytes] = []

    async def consume(consumer: Consumer) -> None:
        while True:
            read.append((await consumer.getone()).value)

    def send(producer: SyncProducer) -> None:
        producer.send(topic, b"%d" % next(numbers)).result(60)

    async with (
        Producer(**options) as producer,
        Admin(**options) as admin,
        Consumer(
            **options, group_id=topic, topics=[topic], auto_offset_reset="earliest"
        ) as consumer,
    ):
        sync = SyncProducer(**options)
        await asyncio.to_thread(sync.start)
        await producer.send_and_wait(topic, b"%d" % next(numbers))
        consuming = asyncio.create_task(consume(consumer))

        async def everything() -> None:
            await asyncio.gather(
                producer.send_and_wait(topic, b"%d" % next(numbers)),
                asyncio.to_thread(send, sync),
                admin.describe_topics([topic]),
            )

        await _repeat(3, everything)
        realm.k5.stop_kdc()
        try:
            calling = asyncio.create_task(_repeat(25, everything))
            done, _ = await asyncio.wait({calling, consuming}, timeout=20)
        finally:
            realm.k5.start_kdc()
        assert not done
        async with asyncio.timeout(60):
            await calling
        await asyncio.to_thread(sync.close)
        sent = next(numbers)
        async with asyncio.timeout(30):
            while len(set(read)) < sent:
                await asyncio.sleep(0.1)
        assert not consuming.done()
        consuming.cancel()
    assert sorted(map(int, read)) == list(range(sent))


async def test_a_stop_does_not_wait_for_a_kdc_that_hangs(
    login, alice, realm, topic, monkeypatch, paused_kdc
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="25s"))
    options = login("SHORT", **alice)
    options["sasl_kerberos_ticket_renew_window_factor"] = 0.1
    producer = Producer(**options)
    await producer.start()
    await producer.send_and_wait(topic, b"v")
    paused_kdc()
    await _repeat(5, lambda: producer.send_and_wait(topic, b"v"))
    began = time.monotonic()
    await producer.stop()
    assert time.monotonic() - began < 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_start_that_is_cancelled_leaves_nothing(login, alice, topic, paused_kdc) -> None:
    paused_kdc()
    starting = asyncio.create_task(Producer(**login(**alice)).start())
    await asyncio.sleep(1)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_new_key_and_its_keytab(login, realm, topic, monkeypatch, caplog, tmp_path) -> None:
    """Until the keytab is replaced, logins fail, and the ticket is used; then all is well."""
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="12s"))
    keytab, new = tmp_path / "carol.keytab", tmp_path / "new.keytab"
    carol = realm.add("carol", keytab)
    options = login("SHORT", sasl_kerberos_keytab=keytab, sasl_kerberos_principal=carol)
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, b"v")
        realm.k5.run([realm.k5.kadmin_local, "ktadd", "-k", str(new), carol])
        await _repeat(11, lambda: producer.send_and_wait(topic, b"v"))
        told = _tickets(caplog)
        shutil.move(new, keytab)
        await _repeat(12, lambda: producer.send_and_wait(topic, b"v"))
        assert producer.metrics().producer["connection-close-total"] == 1  # the bootstrap server's
    assert len(told) == 1
    assert "the present ticket is used for" in told[0]
    assert _tickets(caplog) == told


async def test_a_ticket_cache_that_is_written_again_and_again(
    login, realm, topic, tmp_path, caplog
) -> None:
    """As by cron and kinit."""
    cache = f"{tmp_path}/cache"
    realm.kinit(cache)
    writing = True

    def write() -> None:
        while writing:
            realm.kinit(cache)

    async with Producer(**login("SHORT", sasl_kerberos_ticket_cache=cache)) as producer:
        writer = asyncio.create_task(asyncio.to_thread(write))
        await _repeat(20, lambda: producer.send_and_wait(topic, b"v"))
        writing = False
        await writer
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


async def test_a_ticket_cache_that_is_away_for_a_while(
    login, realm, topic, tmp_path, caplog
) -> None:
    cache = tmp_path / "cache"
    realm.kinit(str(cache))
    async with Producer(**login("SHORT", sasl_kerberos_ticket_cache=str(cache))) as producer:
        await producer.send_and_wait(topic, b"v")
        cache.unlink()
        sending = asyncio.create_task(_repeat(10, lambda: producer.send_and_wait(topic, b"v")))
        await asyncio.sleep(8)  # two renewals of the session
        realm.kinit(str(cache))
        await sending
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.timeout(500)
def test_faults_of_brokers_cost_no_record(tmp_path) -> None:
    """A short `make kerberos-chaos`."""
    words = f"chaos --kerberos 8 --seconds 24 --seed 7 --rate 500 --json --out {tmp_path}".split()
    result = subprocess.run(
        [sys.executable, "-m", "experiments", *words],
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["sent"] == summary["acked"] > 24 * 500 * 0.8
    assert summary["logins"] >= 2 * summary["plan"]["producers"]
