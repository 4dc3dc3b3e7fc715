"""Kerberos on a real broker, with a KDC of its own on 127.0.0.1: `make kerberos`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from javaproperties import loads

from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import (
    AuthenticationError,
    BootstrapError,
    DeliveryTimeoutError,
    SaslAuthenticationError,
)
from kafkaclient.testing import ClusterSecurity, LocalCluster, SecureListener
from kafkaclient.testing.broker import free_ports
from tests.code_blocks import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

gssapi = pytest.importorskip("gssapi", reason="make kerberos installs gssapi and k5test")
k5test = pytest.importorskip("k5test", reason="make kerberos installs gssapi and k5test")
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(240),
    pytest.mark.local_cluster,
    pytest.mark.skipif(
        not all(map(shutil.which, ("krb5kdc", "kadmin.local", "kinit"))),
        reason="no KDC: apt-get install krb5-kdc krb5-admin-server krb5-user",
    ),
]

_REALM = "TEST.LOCAL"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
_FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class Realm:
    """A KDC with the principals alice and kafka/127.0.0.1, each with a keytab."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        # No name service: a broker's principal has the address that the client connects to.
        self._krb5: dict[str, dict[str, Any]] = {
            "libdefaults": {"dns_canonicalize_hostname": "false", "rdns": "false"},
            "realms": {_REALM: {"kdc": f"127.0.0.1:{port}"}},
        }
        listen = {"kdc_listen": f"127.0.0.1:{port}", "kdc_tcp_listen": f"127.0.0.1:{port}"}
        self.k5: Any = k5test.K5Realm(
            realm=_REALM,
            portbase=port,
            krb5_conf=self._krb5,
            kdc_conf={"realms": {_REALM: {"kdc_ports": None, "kdc_tcp_ports": None, **listen}}},
            create_user=False,
            create_host=False,
            get_creds=False,
        )
        for name in ("alice", "kafka/127.0.0.1"):
            self.k5.addprinc(f"{name}@{_REALM}")
            self.k5.extract_keytab(f"{name}@{_REALM}", str(self.keytab(name)))
        self.k5.addprinc(f"bob@{_REALM}", "bob-secret")

    def keytab(self, name: str) -> Path:
        return Path(self.k5.tmpdir, f"{name.partition('/')[0]}.keytab")

    def kinit(self, cache: str, life: str = "1h") -> None:
        self.k5.kinit(f"bob@{_REALM}", "bob-secret", ["-c", cache, "-l", life])

    def logins(self) -> int:
        """How many tickets the KDC has issued that are no service's."""
        log = Path(self.k5.tmpdir, "kdc.log").read_text("utf-8")
        return len(re.findall(r"AS_REQ .* ISSUE", log))

    def config(self, **libdefaults: str) -> str:
        """The path of another krb5.conf."""
        changed = {**self._krb5, "libdefaults": {**self._krb5["libdefaults"], **libdefaults}}
        environment = self.k5.special_env("-".join(libdefaults.values()), False, changed)
        return str(environment["KRB5_CONFIG"])


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    realm = Realm()
    yield realm
    realm.k5.stop()


@pytest.fixture(scope="module")
def brokers(realm: Realm) -> Iterator[LocalCluster]:
    jaas = (
        f"{_MODULE} useKeyTab=true storeKey=true isInitiator=false "
        f'keyTab="{realm.keytab("kafka")}" principal="kafka/127.0.0.1@{_REALM}";'
    )
    listeners = tuple(
        SecureListener(name, protocol, mechanisms=("GSSAPI",))
        for name, protocol in (("KERBEROS", "SASL_SSL"), ("SHORT", "SASL_PLAINTEXT"))
    )
    config = {
        f"listener.name.{each.name.lower()}.gssapi.sasl.jaas.config": jaas for each in listeners
    }
    config["listener.name.short.gssapi.connections.max.reauth.ms"] = "3000"
    config["sasl.kerberos.service.name"] = "kafka"
    cluster = LocalCluster(1, security=ClusterSecurity(listeners=listeners), config=config)
    with pytest.MonkeyPatch.context() as patch:
        java = f"-Djava.security.krb5.conf={realm.k5.env['KRB5_CONFIG']}"
        patch.setenv("JDK_JAVA_OPTIONS", java)
        asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(autouse=True)
def off_the_loop(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may wait for a KDC runs in threads."""
    monkeypatch.setenv("KRB5_CONFIG", realm.k5.env["KRB5_CONFIG"])

    def check() -> None:
        assert asyncio._get_running_loop() is None, "Kerberos in the event loop"

    class Credentials(gssapi.Credentials):  # type: ignore[misc,name-defined]
        def __new__(cls, *values: Any, **names: Any) -> Any:
            check()
            return super().__new__(cls, *values, **names)

    class SecurityContext(gssapi.SecurityContext):  # type: ignore[misc,name-defined]
        def step(self, token: bytes | None = None) -> Any:
            check()
            return super().step(token)

    monkeypatch.setattr(gssapi, "Credentials", Credentials)
    monkeypatch.setattr(gssapi, "SecurityContext", SecurityContext)


def _options(cluster: LocalCluster, listener: str = "KERBEROS", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "bootstrap_servers": cluster.secured_bootstrap(listener),
        "security_protocol": "SASL_SSL" if listener == "KERBEROS" else "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
    }
    if listener == "KERBEROS":
        made["ssl_truststore_location"] = cluster.certificates / "ca.pem"
    return made | more


def _keytab(realm: Realm) -> dict[str, Any]:
    return {
        "sasl_kerberos_keytab": realm.keytab("alice"),
        "sasl_kerberos_principal": f"alice@{_REALM}",
    }


# --- what works -----------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["KERBEROS", "SHORT"])
async def test_every_client_logs_in_with_a_keytab(brokers, realm, topic, listener) -> None:
    options = _options(brokers, listener, **_keytab(realm))
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


async def test_javas_way_to_say_it(brokers, realm, topic) -> None:
    jaas = (
        f'{_MODULE} useKeyTab=true storeKey=true keyTab="{realm.keytab("alice")}" '
        f'principal="alice@{_REALM}" serviceName="kafka";'
    )
    async with Producer(_options(brokers, sasl_jaas_config=jaas)) as producer:
        await producer.send_and_wait(topic, b"v")


async def test_ticket_caches(brokers, realm, topic, tmp_path, monkeypatch) -> None:
    """A cache that is named, and the process's own."""
    cache = f"{tmp_path}/cache"
    realm.kinit(cache)
    jaas = f'{_MODULE} useTicketCache=true renewTicket=true ticketCache="{cache}";'
    async with Producer(_options(brokers, sasl_jaas_config=jaas)) as producer:
        await producer.send_and_wait(topic, b"v")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    async with Producer(_options(brokers)) as producer:
        await producer.send_and_wait(topic, b"v")


async def test_the_service_of_another_host_name(brokers, realm, topic) -> None:
    options = _options(brokers, **_keytab(realm), sasl_kerberos_domain_name="127.0.0.1")
    options["bootstrap_servers"] = options["bootstrap_servers"].replace("127.0.0.1", "localhost")
    async with Producer(**options) as producer:
        await producer.send_and_wait(topic, b"v")


@runs("docs/how-to/security.md", having="GSSAPI")
async def test_the_documented_example_runs(brokers, realm, block) -> None:
    await asyncio.to_thread(block.run, {}, replaced=_here(brokers, realm))


@runs("docs/how-to/security.md", "properties", having="GSSAPI")
async def test_the_documented_property_file_is_read(brokers, realm, topic, block) -> None:
    options = {n.replace("_", "."): value for n, value in _options(brokers).items()}
    async with Producer(options | loads(block.text(_here(brokers, realm)))) as producer:
        await producer.send_and_wait(topic, b"v")


def _here(cluster: LocalCluster, realm: Realm) -> dict[str, str]:
    return {
        "broker.example.org:9096": cluster.secured_bootstrap("KERBEROS"),
        "/etc/security/alice.keytab": str(realm.keytab("alice")),
        "alice@EXAMPLE.ORG": f"alice@{_REALM}",
        "/etc/kafka": str(cluster.certificates),
    }


# --- tickets that end -----------------------------------------------------------------------------


async def test_tickets_and_sessions_are_renewed_under_load(
    brokers, realm, topic, monkeypatch
) -> None:
    """Tickets of 6 seconds, sessions of 3."""
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="6s"))
    logins, end, sent = realm.logins(), time.monotonic() + 20, []
    async with Producer(_options(brokers, "SHORT", **_keytab(realm), linger_ms=1)) as producer:
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
    brokers, realm, topic, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="9s"))
    options = _options(brokers, "SHORT", **_keytab(realm), delivery_timeout_ms=4000)
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
    assert len(texts) == 2, texts
    assert "Cannot contact any KDC" in texts[0]
    assert "the present ticket is used for" in texts[0]
    assert "the last ticket has ended" in texts[1]


@pytest.fixture
def paused_kdc(realm: Realm) -> Iterator[Callable[[], None]]:
    """A function that pauses the KDC until the end of the test."""
    process = realm.k5._kdc_proc.pid
    yield lambda: os.kill(process, signal.SIGSTOP)
    os.kill(process, signal.SIGCONT)


async def test_a_kdc_that_hangs_delays_no_login_that_has_a_ticket(
    brokers, realm, topic, monkeypatch, paused_kdc
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", realm.config(ticket_lifetime="25s"))
    options = _options(brokers, "SHORT", **_keytab(realm))
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


async def test_a_kdc_that_hangs_at_the_start_is_named(brokers, realm, paused_kdc) -> None:
    paused_kdc()
    words = "alice.keytab for alice@TEST.LOCAL has given no Kerberos ticket yet. Check the cred"
    await _refused(_options(brokers, **_keytab(realm), max_block_ms=3000), BootstrapError, words)


# --- what fails, and how --------------------------------------------------------------------------


async def _refused(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        async with Producer(**options):
            pass


async def test_the_wrong_service_names_it(brokers, realm) -> None:
    options = _options(brokers, **_keytab(realm), sasl_kerberos_service_name="nope")
    await _refused(
        options, AuthenticationError, r"service nope@127.0.0.1: Server nope/127.0.0.1@.* not found"
    )


async def test_a_realm_without_a_kdc_is_named(brokers, realm, tmp_path) -> None:
    keytab = tmp_path / "other.keytab"
    script = f"addent -password -p alice@OTHER -k 1 -e aes256-cts\nsecret\nwkt {keytab}\n"
    realm.k5.run(["ktutil"], input=script)
    options = _options(brokers, sasl_kerberos_keytab=keytab, sasl_kerberos_principal="alice@OTHER")
    await _refused(options, AuthenticationError, 'Cannot find KDC for realm "OTHER"')


async def test_a_keytab_without_the_principal_is_told(brokers, realm) -> None:
    options = _options(brokers, **_keytab(realm)) | {"sasl_kerberos_principal": f"bob@{_REALM}"}
    await _refused(
        options, AuthenticationError, r"alice.keytab for bob@.* no key of this principal"
    )


async def test_a_ticket_that_has_ended_is_told(brokers, realm, tmp_path) -> None:
    cache = f"{tmp_path}/cache"
    realm.kinit(cache, "1s")
    await asyncio.sleep(2)
    options = _options(brokers, sasl_kerberos_ticket_cache=cache)
    await _refused(options, AuthenticationError, rf"ticket cache {cache}: .*expired")


async def test_no_cache_is_told(brokers, tmp_path) -> None:
    options = _options(brokers, sasl_kerberos_ticket_cache=f"{tmp_path}/nothing")
    await _refused(options, AuthenticationError, "nothing")


async def test_a_kdc_that_is_away_at_the_start(brokers, realm) -> None:
    options = _options(brokers, **_keytab(realm), max_block_ms=3000)
    realm.k5.stop_kdc()
    began = time.monotonic()
    try:
        await _refused(options, BootstrapError, "Cannot contact any KDC for realm 'TEST.LOCAL'")
    finally:
        realm.k5.start_kdc()
    assert time.monotonic() - began < 6


@pytest.mark.skipif(not _FAKETIME.exists(), reason="no clock to skew: apt-get install faketime")
async def test_a_clock_that_is_wrong(brokers, realm, monkeypatch) -> None:
    """The KDC's: with kdc_timesync the client follows it, and the broker refuses."""
    realm.k5.stop_kdc()
    realm.k5.start_kdc(
        env={**os.environ, **realm.k5.env, "LD_PRELOAD": str(_FAKETIME), "FAKETIME": "+20m"}
    )
    try:
        options = _options(brokers, **_keytab(realm))
        await _refused(options, SaslAuthenticationError, "refused the credentials .GSSAPI")
        monkeypatch.setenv("KRB5_CONFIG", realm.config(kdc_timesync="0"))
        await _refused(options, AuthenticationError, "Clock skew too great in KDC reply")
    finally:
        realm.k5.stop_kdc()
        realm.k5.start_kdc()
