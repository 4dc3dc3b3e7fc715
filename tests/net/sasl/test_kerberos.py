"""Kerberos with a gssapi of this file: integration/security/kerberos has the real one."""

from __future__ import annotations

import asyncio
import logging
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, ConfigError
from kafkaclient.net.kerberos import GssApi, Tickets
from kafkaclient.net.mechanisms import SaslRefusedError
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

_UNREACHABLE, _UNKNOWN_SERVER, _EXPIRED, _NO_CACHE = 0x96C73A9C, 0x96C73A07, 100001, 0x96C73AC3


class GSSError(Exception):
    """GSS-API's words."""

    def __init__(self, min_code: int, text: str) -> None:
        super().__init__("Major (1): of no interest, Minor (2): " + text)
        self.min_code = min_code
        self._text = text

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        assert (code, is_major) == (self.min_code, False)
        return [self._text]


class ExpiredContextError(GSSError):
    pass


class Kdc:
    """What the fake gssapi asks, in threads only."""

    def __init__(self) -> None:
        self.life_s: int | None = 100
        self.error: GSSError | None = None
        self.logins: list[dict[str, Any]] = []
        self.services: list[str] = []
        self.cached: set[tuple[int, str]] = set()

    def ask(self) -> None:
        assert asyncio._get_running_loop() is None, "the KDC is asked in the event loop"
        if self.error is not None:
            raise self.error


class Context:
    """A context of two steps, whose messages are marked instead of encrypted."""

    initiator_name = "alice@REALM"

    def __init__(self, offer: bytes = b"\x01\x00\x10\x00") -> None:
        self.complete = False
        self._offer = offer

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"AP-REQ"
        if token != b"AP-REP":
            raise GSSError(5, "Decrypt integrity check failed")
        self.complete = True
        return None

    def unwrap(self, message: bytes) -> Any:
        if message == b"late":
            raise ExpiredContextError(_EXPIRED, "Success")
        return SimpleNamespace(message=message.removeprefix(b"wrapped "))

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + message)


@pytest.fixture
def kdc(monkeypatch: pytest.MonkeyPatch) -> Kdc:
    kdc = Kdc()

    def credentials(usage: str, name: Any, store: Any) -> Any:
        kdc.ask()
        kdc.logins.append({"usage": usage, "name": name, "store": store})
        return SimpleNamespace(lifetime=kdc.life_s, number=len(kdc.logins))

    def security_context(name: Any, creds: Any, flags: int, **more: Any) -> Any:
        service, _ = name
        if (creds.number, service) not in kdc.cached:
            kdc.ask()
            kdc.cached.add((creds.number, service))
        kdc.services.append(service)
        assert (flags, more["usage"]) == (6, "initiate")
        return Context()

    names = SimpleNamespace(kerberos_principal="principal", hostbased_service="service")
    fake = SimpleNamespace(
        Credentials=credentials,
        SecurityContext=security_context,
        Name=lambda text, kind: (text, kind),
        NameType=names,
        MechType=SimpleNamespace(kerberos="kerberos"),
        RequirementFlag=SimpleNamespace(mutual_authentication=2, integrity=4),
        exceptions=SimpleNamespace(GSSError=GSSError, ExpiredContextError=ExpiredContextError),
    )
    monkeypatch.setitem(sys.modules, "gssapi", fake)
    return kdc


def _options(**more: Any) -> ProducerConfig:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"} | more
    return ProducerConfig.build({"bootstrap.servers": "b:9092"}, given)


def _tickets(**more: Any) -> Tickets:
    return Tickets(_options(**more), asyncio.get_running_loop().time)


# --- the exchange ---------------------------------------------------------------------------------


def test_the_exchange_is_rfc_4752s(kdc: Kdc) -> None:
    mechanism = GssApi(Context(), b"AP-REQ")
    assert mechanism.first() == b"AP-REQ"
    assert mechanism.answer(b"AP-REP") == b""
    choice = mechanism.answer(b"wrapped \x01\x00\x10\x00")
    assert choice == b"wrapped \x01\x00\x00\x00alice@REALM"  # no layer, for no size
    assert mechanism.answer(b"") is None


@pytest.mark.parametrize("offer", [b"\x06\x00\x10\x00", b"", b"\x01", b"\x01\x00\x10\x00more"])
def test_a_security_layer_is_refused(kdc: Kdc, offer: bytes) -> None:
    mechanism = GssApi(Context(), b"AP-REQ")
    mechanism.answer(b"AP-REP")
    with pytest.raises(SaslRefusedError, match="demands a security layer"):
        mechanism.answer(b"wrapped " + offer)


def test_a_broker_without_the_services_key_is_refused(kdc: Kdc) -> None:
    with pytest.raises(SaslRefusedError, match="cannot be used: Decrypt integrity check failed"):
        GssApi(Context(), b"AP-REQ").answer(b"something else")


def test_a_ticket_that_ends_meanwhile_is_no_refusal(kdc: Kdc) -> None:
    mechanism = GssApi(Context(), b"AP-REQ")
    mechanism.answer(b"AP-REP")
    with pytest.raises(BrokerConnectionError, match="ended during a login"):
        mechanism.answer(b"late")


# --- tickets --------------------------------------------------------------------------------------


@virtual_time
async def test_one_login_for_all_brokers(kdc: Kdc, tmp_path: Path) -> None:
    keytab = tmp_path / "alice.keytab"
    keytab.touch()
    tickets = _tickets(sasl_kerberos_keytab=keytab, sasl_kerberos_principal="alice@REALM")
    await asyncio.gather(*(tickets.mechanism(host) for host in ("a", "b", "a")))
    (login,) = kdc.logins
    assert login["name"] == ("alice@REALM", "principal")
    assert login["store"]["client_keytab"] == f"FILE:{keytab}"
    assert login["store"]["ccache"].startswith("MEMORY:")
    assert sorted(kdc.services) == ["kafka@a", "kafka@a", "kafka@b"]


@virtual_time
@pytest.mark.parametrize(
    ("options", "store"),
    [({}, None), ({"sasl_kerberos_ticket_cache": "KCM:"}, {"ccache": "KCM:"})],
)
async def test_a_ticket_cache(kdc: Kdc, options: dict[str, Any], store: Any) -> None:
    await _tickets(**options, sasl_kerberos_domain_name="balancer").mechanism("a")
    assert kdc.logins == [{"usage": "initiate", "name": None, "store": store}]
    assert kdc.services == ["kafka@balancer"]


@virtual_time
@pytest.mark.parametrize(("factor", "second"), [(0.8, 80.0), (0.1, 10.0)])
async def test_a_ticket_is_renewed_after_its_share(kdc: Kdc, factor: float, second: float) -> None:
    tickets = _tickets(sasl_kerberos_ticket_renew_window_factor=factor)
    await tickets.mechanism("a")
    await asyncio.sleep(second - 0.1)
    await tickets.mechanism("a")
    assert len(kdc.logins) == 1
    await asyncio.sleep(0.1)
    await tickets.mechanism("a")
    await asyncio.sleep(0.01)  # the clock stands still while a thread works
    assert len(kdc.logins) == 2


@virtual_time
async def test_a_kdc_that_is_away_is_told_twice_and_the_ticket_used(
    kdc: Kdc, caplog: pytest.LogCaptureFixture
) -> None:
    tickets = _tickets()
    await tickets.mechanism("a")
    kdc.error = GSSError(_UNREACHABLE, "Cannot contact any KDC")
    for _ in range(9):
        await asyncio.sleep(11)
        await tickets.mechanism("a")
    assert tickets.missing is None
    for _ in range(3):
        await asyncio.sleep(11)
        with pytest.raises(BrokerConnectionError, match="Cannot contact any KDC"):
            await tickets.mechanism("a")
    assert "Cannot contact any KDC" in (tickets.missing or "")
    first, second = (r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert "the present ticket is used for 12 s more" in first
    assert "the last ticket has ended" in second
    kdc.error = None
    await tickets.mechanism("a")
    assert tickets.missing is None


@virtual_time
async def test_failed_renewals_have_pauses(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    kdc.life_s = 36_000
    tickets = _tickets()
    await tickets.mechanism("a")
    await asyncio.sleep(30_000)
    kdc.error = GSSError(_UNREACHABLE, "Cannot contact any KDC")
    asked: list[float] = []
    monkeypatch.setattr(kdc, "ask", lambda: (asked.append(0), Kdc.ask(kdc)))
    for _ in range(600):
        await tickets.mechanism("a")
        await asyncio.sleep(1)
    assert len(asked) == 10


@virtual_time
async def test_a_refused_ticket_is_replaced_but_not_at_once(kdc: Kdc) -> None:
    kdc.life_s = 36_000
    tickets = _tickets()
    for at, logins in ((0, 1), (30, 1), (61, 2)):
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        await tickets.mechanism("a")
        await asyncio.sleep(0.01)
        assert len(kdc.logins) == logins
        tickets.refused()


@virtual_time
async def test_a_ticket_without_an_end_is_kept(kdc: Kdc) -> None:
    kdc.life_s = None
    tickets = _tickets()
    await tickets.mechanism("a")
    await asyncio.sleep(80_000)
    await tickets.mechanism("a")
    assert len(kdc.logins) == 1


@virtual_time
@pytest.mark.parametrize(
    ("code", "kind"),
    [(_UNREACHABLE, BrokerConnectionError), (_UNKNOWN_SERVER, AuthenticationError)],
)
async def test_what_passes_can_be_retried(kdc: Kdc, code: int, kind: type[Exception]) -> None:
    tickets = _tickets()
    kdc.error = GSSError(code, "libkrb5's words")
    with pytest.raises(kind, match=r"from the ticket cache \(the default one\): libkrb5's words"):
        await tickets.mechanism("a")
    assert "libkrb5's words" in (tickets.missing or "")
    kdc.error = None
    await tickets.mechanism("b")
    kdc.error = GSSError(code, "libkrb5's words")
    with pytest.raises(kind, match="for the service kafka@a: libkrb5's words"):
        await tickets.mechanism("a")


@virtual_time
@pytest.mark.parametrize("code", [_NO_CACHE, 0x96C73AC7, 0x96C73A8D])
async def test_a_cache_that_goes_after_the_login_may_come_back(kdc: Kdc, code: int) -> None:
    tickets = _tickets(sasl_kerberos_ticket_cache="KCM:")
    await tickets.mechanism("a")
    kdc.error = GSSError(code, "no cache")
    with pytest.raises(BrokerConnectionError, match="for the service kafka@b: no cache"):
        await tickets.mechanism("b")
    kdc.error = None
    await tickets.mechanism("b")


# --- what is wrong at the start -------------------------------------------------------------------


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r'pip install "kafkaclient\[gssapi\]"'):
        Tickets(_options())


def test_a_missing_keytab_is_named(kdc: Kdc, tmp_path: Path) -> None:
    options = _options(sasl_kerberos_keytab=tmp_path / "no", sasl_kerberos_principal="alice")
    with pytest.raises(ConfigError, match=r"no does not exist or cannot be read"):
        Tickets(options)


@virtual_time
async def test_a_keytab_without_the_principal_is_told(kdc: Kdc, tmp_path: Path) -> None:
    keytab = tmp_path / "alice.keytab"
    keytab.touch()
    tickets = _tickets(sasl_kerberos_keytab=keytab, sasl_kerberos_principal="bob@REALM")
    kdc.error = GSSError(_NO_CACHE, "No credentials cache found")
    with pytest.raises(AuthenticationError, match="no key of this principal"):
        await tickets.mechanism("a")
