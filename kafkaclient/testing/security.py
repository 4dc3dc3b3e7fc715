"""TLS and SASL listeners for local brokers, with their certificates and users.

trustme (the extra ``testing``) creates a certificate authority for each cluster, and certificates
for 127.0.0.1 and localhost. This module is for tests only: the brokers' settings contain passwords
in plain text.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["MECHANISMS", "ClusterSecurity", "SecureListener", "make_certificates"]

_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CERTIFICATES = ("valid", "expired", "elsewhere")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULES = "org.apache.kafka.common.security"
_LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class SecureListener:
    """An additional listener of each broker. One that is called ``PROXIED`` takes the place of the
    plain listener behind the fault proxies; with TLS they can cut, delay and stall connections, and
    have no faults that need the frames inside.

    ``certificate`` is ``valid``, ``expired``, or ``elsewhere`` (for another host name).
    ``client_certificate``: whether clients need a certificate of the cluster's authority.
    ``mechanisms`` are the SASL mechanisms. ``max_reauth_ms`` is the time in milliseconds until a
    client must authenticate again (KIP-368); 0 is never.
    """

    name: str
    protocol: str
    certificate: str = "valid"
    client_certificate: bool = False
    mechanisms: tuple[str, ...] = MECHANISMS
    max_reauth_ms: int = 0


_USUAL = (
    SecureListener("SSL", "SSL"),
    SecureListener("MUTUAL", "SSL", client_certificate=True),
    SecureListener("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
    SecureListener("SASL_SSL", "SASL_SSL"),
)


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """The security settings for ``LocalCluster(security=...)``.

    ``listeners`` are added to the plain listeners. ``users`` maps names to passwords for PLAIN and
    both SCRAM mechanisms; OAUTHBEARER accepts unsigned tokens. ``acls``: each operation needs an
    ACL, except for ``admin`` and for anonymous clients (the plain listeners).
    """

    users: Mapping[str, str] = field(default_factory=dict)
    listeners: tuple[SecureListener, ...] = _USUAL
    acls: bool = False

    def __post_init__(self) -> None:
        for listener in self.listeners:
            if listener.protocol not in _PROTOCOLS or listener.certificate not in _CERTIFICATES:
                raise ConfigError(
                    f"{listener}: the protocol must be one of {', '.join(_PROTOCOLS)}, the "
                    f"certificate one of {', '.join(_CERTIFICATES)}"
                )
        for text in (*self.users, *self.users.values()):
            if any(letter in text for letter in '"\\,=[]'):
                raise ConfigError('names and passwords of users must not contain " \\ , = [ or ]')

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ClusterSecurity:
        """The security of which ``dataclasses.asdict`` and JSON made these values."""
        listeners = tuple(
            SecureListener(**{**listener, "mechanisms": tuple(listener["mechanisms"])})
            for listener in values["listeners"]
        )
        return cls(values["users"], listeners, values["acls"])

    def scram_arguments(self) -> list[str]:
        """The arguments with which Kafka's storage tool creates the users."""
        return [
            argument
            for name, password in self.users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]

    def properties(self, certificates: Path) -> dict[str, str]:
        """The additional broker settings, without the listeners themselves."""
        found: dict[str, str] = {}
        for listener in self.listeners:
            prefix = f"listener.name.{listener.name.lower()}."
            if "SSL" in listener.protocol:
                found |= {prefix + key: v for key, v in _tls(listener, certificates).items()}
            if listener.protocol.startswith("SASL"):
                found |= {prefix + key: v for key, v in self._sasl(listener).items()}
        if self.acls:
            found["authorizer.class.name"] = (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            )
            found["super.users"] = "User:ANONYMOUS;User:admin"
        return found

    def _sasl(self, listener: SecureListener) -> dict[str, str]:
        users = " ".join(f'user_{name}="{word}"' for name, word in self.users.items())
        claims = 'unsecuredLoginStringClaim_sub="broker"'
        found = {
            "sasl.enabled.mechanisms": ",".join(listener.mechanisms),
            "plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
            "oauthbearer.sasl.jaas.config": (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required {claims};"
            ),
        }
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            found[f"{mechanism}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
        for mechanism in listener.mechanisms if listener.max_reauth_ms else ():
            key = f"{mechanism.lower()}.connections.max.reauth.ms"
            found[key] = str(listener.max_reauth_ms)
        return found


def _tls(listener: SecureListener, certificates: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / f"{listener.certificate}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "ssl.client.auth": "required" if listener.client_certificate else "none",
    }


def make_certificates(directory: Path) -> None:
    """Write ``ca.pem``, the brokers' ``valid.pem``, ``expired.pem`` and ``elsewhere.pem``, and
    ``client.pem`` (CN=client) for clients. All except ``ca.pem`` have a certificate and a key."""
    try:
        import trustme  # noqa: PLC0415 - few clusters need certificates
    except ImportError as error:
        raise ConfigError(
            "a cluster with TLS needs trustme: pip install 'kafkaclient[testing]'"
        ) from error
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    here = ("127.0.0.1", "localhost")
    made = {
        "valid": authority.issue_cert(*here),
        "expired": authority.issue_cert(
            *here, not_before=_LONG_AGO, not_after=_LONG_AGO + datetime.timedelta(days=30)
        ),
        "elsewhere": authority.issue_cert("elsewhere.example.org"),
        "client": authority.issue_cert("client@example.org", common_name="client"),
    }
    for name, leaf in made.items():
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        (directory / f"{name}.pem").write_bytes(_pkcs8(leaf.private_key_pem.bytes()) + chain)


def _pkcs8(key: bytes) -> bytes:
    """The same private key in PKCS #8, the only format that Java reads."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - trustme needs it

    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
