from __future__ import annotations

import json
import ssl
from dataclasses import asdict
from pathlib import Path

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing import ClusterSecurity, SecureListener
from kafkaclient.testing.security import make_certificates
from kafkaclient.testing.settings import ClusterSpec, Ports, Secured, broker_properties

USERS = {"alice": "alice-secret"}
PORTS = Ports(1, 2, 3, 4, 5)


def _properties(security: ClusterSecurity) -> dict[str, str]:
    spec = ClusterSpec(1, None, {}, "4.3.1", security)
    numbers = {name: 100 + n for n, name in enumerate(spec.secure_listeners)}
    return broker_properties(spec, 0, [PORTS], "/data", Secured(numbers, Path("/certs")))


def test_the_usual_listeners_stand_beside_the_plain_ones() -> None:
    found = _properties(ClusterSecurity(users=USERS))
    assert found["listeners"].startswith("DIRECT://127.0.0.1:1,")
    assert "SASL_SSL://127.0.0.1:103" in found["listeners"]
    assert "SASL_SSL://127.0.0.1:103" in found["advertised.listeners"]
    assert "MUTUAL:SSL" in found["listener.security.protocol.map"]
    assert found["listener.name.mutual.ssl.client.auth"] == "required"
    assert found["listener.name.ssl.ssl.client.auth"] == "none"
    assert found["listener.name.ssl.ssl.keystore.location"] == "/certs/valid.pem"
    assert "listener.name.sasl_plaintext.ssl.client.auth" not in found
    assert 'user_alice="alice-secret"' in found["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert "authorizer.class.name" not in found


def test_a_listener_of_ones_own() -> None:
    listener = SecureListener(
        "SHORT", "SASL_SSL", certificate="expired", mechanisms=("PLAIN",), max_reauth_ms=500
    )
    found = _properties(ClusterSecurity(listeners=(listener,), acls=True))
    assert found["listener.name.short.ssl.keystore.location"] == "/certs/expired.pem"
    assert found["listener.name.short.sasl.enabled.mechanisms"] == "PLAIN"
    assert found["listener.name.short.plain.connections.max.reauth.ms"] == "500"
    assert "User:ANONYMOUS" in found["super.users"]


def test_the_proxied_listener_can_be_secure() -> None:
    listener = SecureListener("PROXIED", "SASL_SSL", mechanisms=("GSSAPI",), max_reauth_ms=500)
    security = ClusterSecurity(listeners=(listener,))
    spec = ClusterSpec(1, None, {}, "4.3.1", security)
    assert spec.secure_listeners == ()
    assert spec.encrypts_proxied
    found = _properties(security)
    assert "PROXIED://127.0.0.1:2" in found["listeners"]
    assert "PROXIED://127.0.0.1:3" in found["advertised.listeners"]
    assert found["listener.security.protocol.map"].endswith("INTERNAL:PLAINTEXT,PROXIED:SASL_SSL")
    assert found["listener.name.proxied.gssapi.connections.max.reauth.ms"] == "500"
    readable = ClusterSecurity(listeners=(SecureListener("PROXIED", "SASL_PLAINTEXT"),))
    assert not ClusterSpec(1, None, {}, "4.3.1", readable).encrypts_proxied


def test_it_survives_the_way_to_the_supervisor() -> None:
    security = ClusterSecurity(users=USERS, listeners=(SecureListener("A", "SSL"),), acls=True)
    assert ClusterSecurity.from_json(json.loads(json.dumps(asdict(security)))) == security


def test_users_are_told_to_the_storage_tool() -> None:
    assert ClusterSecurity(users=USERS).scram_arguments() == [
        "--add-scram",
        "SCRAM-SHA-256=[name=alice,password=alice-secret]",
        "--add-scram",
        "SCRAM-SHA-512=[name=alice,password=alice-secret]",
    ]


@pytest.mark.parametrize(
    ("listener", "users"),
    [
        (SecureListener("A", "TLS"), {}),
        (SecureListener("A", "SSL", certificate="old"), {}),
        (SecureListener("A", "SSL"), {"alice": 'se"cret'}),
        (SecureListener("A", "SSL"), {"a,b": "secret"}),
    ],
)
def test_what_makes_no_sense_is_refused(listener: SecureListener, users: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ClusterSecurity(users=users, listeners=(listener,))


def test_certificates_are_of_one_authority_and_readable_by_java(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"ca.pem", "valid.pem", "expired.pem", "elsewhere.pem", "client.pem"}
    for name in names - {"ca.pem"}:
        assert "-----BEGIN PRIVATE KEY-----" in (tmp_path / name).read_text()  # PKCS#8
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / name)
    context.load_verify_locations(tmp_path / "ca.pem")
