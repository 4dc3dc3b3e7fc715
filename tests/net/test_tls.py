"""From PEM and PKCS12 to contexts; what is wrong with them is told when they are read."""

from __future__ import annotations

import logging
import os
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization as keys
from cryptography.hazmat.primitives.serialization import pkcs12

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import ConfigError
from kafkaclient.net.tls import TlsContexts

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "key-password"


@pytest.fixture(scope="module")
def leaf(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("client@example.org")


def _contexts(**options: Any) -> TlsContexts:
    given = {"bootstrap.servers": "b:9092", "security.protocol": "SSL", **options}
    return TlsContexts(ProducerConfig.build(given))


def _pem(leaf: trustme.LeafCert) -> str:
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems).decode()


def _key(leaf: trustme.LeafCert, *, password: str | None = None, pkcs8: bool = True) -> str:
    key = keys.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    how = keys.PrivateFormat.PKCS8 if pkcs8 else keys.PrivateFormat.TraditionalOpenSSL
    lock: Any = keys.NoEncryption()
    if password is not None:
        lock = keys.BestAvailableEncryption(password.encode())
    return key.private_bytes(keys.Encoding.PEM, how, lock).decode()


def _trusts(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509"]


def test_the_defaults_verify_the_broker_and_its_name() -> None:
    context = _contexts().context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


def test_the_name_alone_can_be_left_unchecked() -> None:
    context = _contexts(**{"ssl.endpoint.identification.algorithm": ""}).context()
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ("TLSv1.3", ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        (" TLSv1.3 , TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        (["TLSv1.2"], ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
    ],
)
def test_versions(given: Any, least: ssl.TLSVersion, most: ssl.TLSVersion) -> None:
    context = _contexts(**{"ssl.enabled.protocols": given}).context()
    assert (context.minimum_version, context.maximum_version) == (least, most)


def test_trust_from_a_file_and_from_text(authority: trustme.CA, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    text = authority.cert_pem.bytes().decode()
    on_one_line = " ".join(text.split("\n"))  # as property files continue lines
    two = text + trustme.CA().cert_pem.bytes().decode()
    for name, given, count in (
        ("ssl.truststore.location", str(path), 1),
        ("ssl.ca.location", path, 1),
        ("ssl.truststore.certificates", text, 1),
        ("ssl.truststore.certificates", on_one_line, 1),
        ("ssl.truststore.certificates", two, 2),
    ):
        assert _trusts(_contexts(**{name: given}).context()) == count


@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("pkcs8", [True, False])
def test_an_identity_from_files_and_from_text(
    leaf: trustme.LeafCert, tmp_path: Path, password: str | None, pkcs8: bool
) -> None:
    chain, key = _pem(leaf), _key(leaf, password=password, pkcs8=pkcs8)
    both, only_chain, only_key = (tmp_path / name for name in ("both", "chain", "key"))
    both.write_text(key + chain)
    only_chain.write_text(chain)
    only_key.write_text(key)
    lock = {} if password is None else {"ssl.key.password": password}
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    for options in (
        {"ssl.keystore.location": both},
        {"ssl.certificate.location": only_chain, "ssl.key.location": only_key},
        {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key},
    ):
        _contexts(**options, **lock)
    assert not before or set(os.listdir("/proc/self/fd")) <= before


def _store(key: str, chain: str) -> bytes:
    leaf, *rest = x509.load_pem_x509_certificates(chain.encode())
    private: Any = keys.load_pem_private_key(key.encode(), None)
    lock = keys.BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"client", private, leaf, rest, lock)


@pytest.mark.parametrize("kind", [None, "PKCS12", "JKS"])
def test_pkcs12_files_are_known_by_themselves(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    """Java's JKS reads them, too. The key goes through memory only."""
    leaf = authority.create_child_ca().issue_cert("client@example.org")
    trusted = [
        x509.load_pem_x509_certificate(ca.cert_pem.bytes()) for ca in (authority, trustme.CA())
    ]
    lock = keys.BestAvailableEncryption(PASSWORD.encode())
    (tmp_path / "key.p12").write_bytes(_store(_key(leaf), _pem(leaf)))
    (tmp_path / "trust.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(None, None, None, trusted, lock)
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    options = {
        "ssl.truststore.location": tmp_path / "trust.p12",
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": tmp_path / "key.p12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    if kind is not None:
        options |= {"ssl.truststore.type": kind, "ssl.keystore.type": kind}
    contexts = _contexts(**options)
    assert _trusts(contexts.context()) == 2


def test_pkcs12_without_its_package_names_the_extra(
    leaf: trustme.LeafCert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.p12").write_bytes(_store(_key(leaf), _pem(leaf)))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match=r'pip install "kafkaclient\[pkcs12\]"'):
        _contexts(**{"ssl.keystore.location": tmp_path / "key.p12"})


def test_a_key_given_as_text_never_gets_onto_a_disk(
    leaf: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    _contexts(**{"ssl.keystore.certificate.chain": _pem(leaf), "ssl.keystore.key": _key(leaf)})


def test_where_there_is_no_memory_for_files_one_of_our_own_serves(
    leaf: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _contexts(**{"ssl.keystore.certificate.chain": _pem(leaf), "ssl.keystore.key": _key(leaf)})
    assert not list(tmp_path.iterdir())


class Broken:
    """Options that cannot work, by what is said about them."""

    def __init__(self, leaf: trustme.LeafCert, directory: Path) -> None:
        self.chain, self.key, self.directory = _pem(leaf), _key(leaf), directory

    def file(self, content: str | bytes) -> str:
        path = self.directory / str(len(list(self.directory.iterdir())))
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def options(self, case: str) -> dict[str, Any]:
        locked = self.key and _locked(self.key)
        text = {"ssl.keystore.certificate.chain": self.chain}
        cases: dict[str, dict[str, Any]] = {
            "cannot be read: No such file": {"ssl.truststore.location": "/no/such/file"},
            "cannot be read: embedded null": {"ssl.truststore.location": "x\0y"},
            "holds no certificate in PEM: it is another format": {
                "ssl.truststore.location": self.file("no PEM")
            },
            "holds no certificate in PEM$": {"ssl.truststore.location": self.file(self.key)},
            "is not a PEM file": {"ssl.truststore.location": self.file(b"\xff\xff")},
            r"-importkeystore -srckeystore .* -destkeystore .*p12 -deststoretype PKCS12$": {
                "ssl.truststore.location": self.file(b"\xfe\xed\xfe\xed\0\0\0\2"),
                "ssl.truststore.password": PASSWORD,
                "ssl.truststore.type": "JKS",
            },
            "is a PEM file, which has no password of its own": {
                "ssl.keystore.location": self.file(self.key + self.chain),
                "ssl.keystore.password": PASSWORD,
            },
            "is no PKCS12 file, or ssl_keystore_password is missing": {
                "ssl.keystore.location": self.file(_store(self.key, self.chain))
            },
            "is no PKCS12 file, or ssl_keystore_password is wrong": {
                "ssl.keystore.location": self.file(_store(self.key, self.chain)),
                "ssl.keystore.password": "not-the-password",
            },
            "has one password, and ssl_key_password another": {
                "ssl.keystore.location": self.file(_store(self.key, self.chain)),
                "ssl.keystore.password": PASSWORD,
                "ssl.key.password": "another",
            },
            "holds a certificate that cannot be read": {
                "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nAAAA\n"
                "-----END CERTIFICATE-----"
            },
            "holds 0 private keys": {"ssl.keystore.location": self.file(self.chain)},
            "holds 2 private keys": {
                "ssl.keystore.location": self.file(self.chain + self.key + self.key)
            },
            "holds no certificate": {"ssl.keystore.location": self.file(self.key)},
            "give ssl_key_password": {**text, "ssl.keystore.key": locked},
            "ssl_key_password is wrong": {
                **text,
                "ssl.keystore.key": locked,
                "ssl.key.password": "not-the-password",
            },
            "does not belong to the first certificate": {
                **text,
                "ssl.keystore.key": _key(trustme.CA().issue_cert("other@example.org")),
            },
        }
        return cases[case]


def _locked(key: str) -> str:
    unlocked = keys.load_pem_private_key(key.encode(), None)
    lock = keys.BestAvailableEncryption(PASSWORD.encode())
    return unlocked.private_bytes(keys.Encoding.PEM, keys.PrivateFormat.PKCS8, lock).decode()


@pytest.mark.parametrize(
    "case",
    [
        "cannot be read: No such file",
        "cannot be read: embedded null",
        "holds no certificate in PEM: it is another format",
        "holds no certificate in PEM$",
        "is not a PEM file",
        r"-importkeystore -srckeystore .* -destkeystore .*p12 -deststoretype PKCS12$",
        "is a PEM file, which has no password of its own",
        "is no PKCS12 file, or ssl_keystore_password is missing",
        "is no PKCS12 file, or ssl_keystore_password is wrong",
        "has one password, and ssl_key_password another",
        "holds a certificate that cannot be read",
        "holds 0 private keys",
        "holds 2 private keys",
        "holds no certificate",
        "give ssl_key_password",
        "ssl_key_password is wrong",
        "does not belong to the first certificate",
    ],
)
def test_what_cannot_be_used_is_told_at_once(
    case: str, leaf: trustme.LeafCert, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=case) as caught:
        _contexts(**Broken(leaf, tmp_path).options(case))
    assert PASSWORD not in str(caught.value)
    assert "not-the-password" not in str(caught.value)
    assert "PRIVATE" not in str(caught.value)


# --- files that change --------------------------------------------------------------------------


def test_a_changed_file_is_read_for_the_next_connection(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    contexts = _contexts(**{"ssl.truststore.location": path})
    first = contexts.context()
    assert contexts.context() is first
    os.utime(path, ns=(1, 1))
    second = contexts.context()
    assert second is not first

    path.write_text("half of a cert")
    with caplog.at_level(logging.WARNING):
        assert contexts.context() is second
        assert contexts.context() is second
    assert len(caplog.records) == 1  # told once per change
    assert "the certificates read before stay in use" in caplog.text
    path.unlink()
    assert contexts.context() is second

    two = authority.cert_pem.bytes() + trustme.CA().cert_pem.bytes()
    path.write_bytes(two)
    assert _trusts(contexts.context()) == 2


def test_a_link_that_is_moved_is_a_change(authority: trustme.CA, tmp_path: Path) -> None:
    """Secrets mounted into containers are replaced so."""
    for name, count in (("one", 1), ("two", 2)):
        pems = [authority.cert_pem.bytes(), trustme.CA().cert_pem.bytes()][:count]
        (tmp_path / name).write_bytes(b"".join(pems))
    link = tmp_path / "ca.pem"
    link.symlink_to("one")
    contexts = _contexts(**{"ssl.truststore.location": link})
    assert _trusts(contexts.context()) == 1
    link.unlink()
    link.symlink_to("two")
    assert _trusts(contexts.context()) == 2


def test_a_context_of_ones_own_is_used_as_it_is() -> None:
    own = ssl.create_default_context()
    assert _contexts(ssl_context=own).context() is own
