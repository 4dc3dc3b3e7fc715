"""Kerberos on a real broker, with a KDC of its own on 127.0.0.1: `make kerberos`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from javaproperties import loads

from experiments.realm import JAAS, REALM
from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import (
    AuthenticationError,
    BootstrapError,
    DeliveryTimeoutError,
    SaslAuthenticationError,
)
from tests.code_blocks import runs

if TYPE_CHECKING:
    from experiments.realm import Realm
    from kafkaclient.testing import LocalCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(240), pytest.mark.local_cluster]

_FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


# --- what works -----------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["KERBEROS", "SHORT"])
async def test_every_client_logs_in_with_a_keytab(login, alice, topic, listener) -> None:
    options = login(listener, **alice)
    async with Producer(**options) as producer:
        written = await producer.send_and_wait(topic, b"x" * 100_000)
    assert written.offset == 0
    async with Admin(**options) as admin:
        assert topic in await admin.describe_topics([topic])
    async with Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        async for record in consumer:
            assert len(record.value) == 100_000
            break


async def test_javas_way_to_say_it(login, realm, topic) -> None:
    jaas = (
        f'{JAAS} useKeyTab=true storeKey=true keyTab="{realm.keytab("alice")}" '
        f'principal="alice@{REALM}" serviceName="kafka";'
    )
    async with Producer(login(sasl_jaas_config=jaas)) as producer:
        await producer.send_and_wait(topic, b"v")


async def test_ticket_caches(login, realm, topic, tmp_path, monkeypatch) -> None:
    """A cache that is named, and the process's own."""
    cache = f"{tmp_path}/cache"
    realm.kinit(cache)
    jaas = f'{JAAS} useTicketCache=true renewTicket=true ticketCache="{cache}";'
    async with Producer(login(sasl_jaas_config=jaas)) as producer:
        await producer.send_and_wait(topic, b"v")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    async with Producer(login()) as producer:
        await producer.send_and_wait(topic, b"v")


async def test_the_service_of_another_host_name(login, alice, topic) -> None:
    options = login(**alice, sasl_kerberos_domain_name="127.0.0.1")
    options["bootstrap_servers"] = options["bootstrap_servers"].replace("127.0.0.1", "localhost")
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, b"v")


@runs("docs/how-to/security.md", having="GSSAPI")
async def test_the_documented_example_runs(brokers, realm, block) -> None:
    await asyncio.to_thread(block.run, {}, replaced=_here(brokers, realm))


@runs("docs/how-to/security.md", "properties", having="GSSAPI")
async def test_the_documented_property_file_is_read(login, brokers, realm, topic, block) -> None:
    options = {n.replace("_", "."): value for n, value in login().items()}
    async with Producer(options | loads(block.text(_here(brokers, realm)))) as producer:
        await producer.send_and_wait(topic, b"v")


def _here(cluster: LocalCluster, realm: Realm) -> dict[str, str]:
    return {
        "broker.example.org:9096": cluster.secured_bootstrap("KERBEROS"),
        "/etc/security/alice.keytab": str(realm.keytab("alice")),
        "alice@EXAMPLE.ORG": f"alice@{REALM}",
        "/etc/kafka": str(cluster.certificates),
    }


# --- tickets that end -----------------------------------------------------------------------------


async def test_tickets_and_sessions_are_renewed_under_load(
    login, alice, realm, topic, monkeypatch
) -> None:
    """Tickets of 6 seconds, sessions of 3."""
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="6s"))
    logins, end, sent = realm.logins(), time.monotonic() + 20, []
    async with Producer(login("SHORT", **alice, linger_ms=1)) as producer:
        while time.monotonic() < end:
            sent.append(await producer.send(topic, b"v"))
            await asyncio.sleep(0.01)
        await producer.flush()
        closed = producer.metrics().producer["connection-close-total"] - 1  # the bootstrap server's
    places = {await delivery for delivery in sent}
    assert len({(place.partition, place.offset) for place in places}) == len(sent) > 400
    assert 6 <= realm.logins() - logins <= 14  # libkrb5 asks twice for such a short ticket
    assert closed == 0


async def test_without_a_kdc_it_goes_on_until_the_ticket_ends(
    login, alice, realm, topic, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="9s"))
    options = login("SHORT", **alice, delivery_timeout_ms=4000)
    options |= {"request_timeout_ms": 2000, "linger_ms": 0}
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, b"v")
        began = time.monotonic()
        realm.k5.stop_kdc()
        try:
            while time.monotonic() < began + 8:  # two renewals of the session
                await producer.send_and_wait(topic, b"v")
                await asyncio.sleep(0.05)
            while "the last ticket has ended" not in caplog.text:
                with contextlib.suppress(DeliveryTimeoutError):
                    await producer.send_and_wait(topic, b"v")
                await asyncio.sleep(0.05)
        finally:
            realm.k5.start_kdc()
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(DeliveryTimeoutError):
                    await producer.send_and_wait(topic, b"v")
                    break
    tickets = [r for r in caplog.records if r.name == "kafkaclient.net.kerberos"]
    texts = [r.getMessage() for r in tickets if r.levelno == logging.WARNING]
    *before, last = texts  # one, unless the machine was too slow to log in while it had a ticket
    assert len(before) <= 1
    assert all("the present ticket is used for" in text for text in before)
    assert "Cannot contact any KDC" in last
    assert "the last ticket has ended" in last


async def test_a_kdc_that_hangs_delays_no_login_that_has_a_ticket(
    login, alice, realm, topic, monkeypatch, paused_kdc
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="25s"))
    options = login("SHORT", **alice)
    options["sasl_kerberos_ticket_renew_window_factor"] = 0.2
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, b"v")
        paused_kdc()
        slowest, end = 0.0, time.monotonic() + 12
        while time.monotonic() < end:
            began = time.monotonic()
            await producer.send_and_wait(topic, b"v")
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.02)
        assert producer.metrics().producer["connection-close-total"] == 1  # the bootstrap server's
    assert slowest < 1


async def test_a_kdc_that_hangs_at_the_start_is_named(login, alice, paused_kdc) -> None:
    paused_kdc()
    words = "alice.keytab for alice@TEST.LOCAL has given no Kerberos ticket yet. Check the cred"
    await _refused(login(**alice, max_block_ms=3000), BootstrapError, words)


# --- what fails, and how --------------------------------------------------------------------------


async def _refused(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        async with Producer(**options):
            pass


async def test_the_wrong_service_names_it(login, alice) -> None:
    options = login(**alice, sasl_kerberos_service_name="nope")
    await _refused(
        options, AuthenticationError, r"service nope@127.0.0.1: Server nope/127.0.0.1@.* not found"
    )


async def test_a_realm_without_a_kdc_is_named(login, alice, realm, tmp_path) -> None:
    keytab = tmp_path / "other.keytab"
    script = f"addent -password -p alice@OTHER -k 1 -e aes256-cts\nsecret\nwkt {keytab}\n"
    realm.k5.run(["ktutil"], input=script)
    options = login(sasl_kerberos_keytab=keytab, sasl_kerberos_principal="alice@OTHER")
    await _refused(options, AuthenticationError, 'Cannot find KDC for realm "OTHER"')


async def test_a_keytab_without_the_principal_is_told(login, alice) -> None:
    options = login(**alice) | {"sasl_kerberos_principal": f"bob@{REALM}"}
    await _refused(
        options, AuthenticationError, r"alice.keytab for bob@.* no key of this principal"
    )


async def test_a_ticket_that_has_ended_is_told(login, realm, tmp_path) -> None:
    cache = f"{tmp_path}/cache"
    realm.kinit(cache, "1s")
    await asyncio.sleep(2)
    options = login(sasl_kerberos_ticket_cache=cache)
    await _refused(options, AuthenticationError, rf"ticket cache {cache}: .*expired")


async def test_no_cache_is_told(login, tmp_path) -> None:
    options = login(sasl_kerberos_ticket_cache=f"{tmp_path}/nothing")
    await _refused(options, AuthenticationError, "nothing")


async def test_a_kdc_that_is_away_at_the_start(login, alice, realm) -> None:
    options = login(**alice, max_block_ms=3000)
    realm.k5.stop_kdc()
    began = time.monotonic()
    try:
        await _refused(options, BootstrapError, "Cannot contact any KDC for realm 'TEST.LOCAL'")
    finally:
        realm.k5.start_kdc()
    assert time.monotonic() - began < 6


@pytest.mark.skipif(not _FAKETIME.exists(), reason="no clock to skew: apt-get install faketime")
async def test_a_clock_that_is_wrong(login, alice, realm, monkeypatch) -> None:
    """The KDC's: with kdc_timesync the client follows it, and the broker refuses."""
    realm.k5.stop_kdc()
    realm.k5.start_kdc(
        env={**os.environ, **realm.k5.env, "LD_PRELOAD": str(_FAKETIME), "FAKETIME": "+20m"}
    )
    try:
        options = login(**alice)
        await _refused(options, SaslAuthenticationError, "refused the credentials .GSSAPI")
        monkeypatch.setenv("KRB5_CONFIG", realm.config(kdc_timesync="0"))
        await _refused(options, AuthenticationError, "Clock skew too great in KDC reply")
    finally:
        realm.k5.stop_kdc()
        realm.k5.start_kdc()
