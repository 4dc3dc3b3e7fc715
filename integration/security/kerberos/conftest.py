"""A KDC and a broker, for the tests of this folder: `make kerberos`."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from experiments.realm import Realm, missing
from kafkaclient.testing import ClusterSecurity, LocalCluster, SecureListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="package")
def realm() -> Iterator[Realm]:
    if (problem := missing()) is not None:
        pytest.skip(problem)
    with Realm() as realm:
        yield realm


@pytest.fixture(scope="package")
def brokers(realm: Realm) -> Iterator[LocalCluster]:
    listeners = (
        SecureListener("KERBEROS", "SASL_SSL", mechanisms=("GSSAPI",)),
        SecureListener("SHORT", "SASL_PLAINTEXT", mechanisms=("GSSAPI",), max_reauth_ms=3000),
    )
    config = realm.broker_config(*listeners)
    cluster = LocalCluster(1, security=ClusterSecurity(listeners=listeners), config=config)
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(autouse=True)
def off_the_loop(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may wait for a KDC runs in threads."""
    import gssapi  # noqa: PLC0415 - it may be missing

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


@pytest.fixture
def login(brokers: LocalCluster) -> Callable[..., dict[str, Any]]:
    """A client's options for a listener, without its principal."""

    def make(listener: str = "KERBEROS", **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = {
            "bootstrap_servers": brokers.secured_bootstrap(listener),
            "security_protocol": "SASL_SSL" if listener == "KERBEROS" else "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
        }
        if listener == "KERBEROS":
            made["ssl_truststore_location"] = brokers.certificates / "ca.pem"
        return made | more

    return make


@pytest.fixture
def alice(realm: Realm) -> dict[str, Any]:
    """The options of a principal with a keytab."""
    return {name.replace(".", "_"): value for name, value in realm.alice.items()}


@pytest.fixture
def paused_kdc(realm: Realm) -> Iterator[Callable[[], None]]:
    """A function that pauses the KDC until the end of the test."""
    process = realm.k5._kdc_proc.pid
    yield lambda: os.kill(process, signal.SIGSTOP)
    os.kill(process, signal.SIGCONT)
