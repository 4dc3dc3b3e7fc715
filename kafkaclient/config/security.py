"""The options of encryption and authentication, and the checks of how they go together.

Names and meanings are Java's (``SslConfigs``, ``SaslConfigs``). The aliases are the names in
librdkafka, aiokafka and kafka-python.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kafkaclient.config.kinds import (
    FILLED_TEXT,
    HOST_NAME,
    PATH,
    PEM,
    SASL_EXTENSIONS,
    SSL_CONTEXT,
    TEXT,
    TOKEN_PROVIDER,
    VERBATIM,
    integer,
    number,
    one_of,
    optional,
    some_of,
)
from kafkaclient.config.options import Options, Section
from kafkaclient.config.token_providers import MSK_IAM, apply_jaas, msk_provider, ready_provider
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

    from kafkaclient.config.options import Given

_log = logging.getLogger(__name__)

_SECURITY = Section("Encryption")
_LOGIN = Section("Authentication")

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", MSK_IAM)

_OIDC_URL = "sasl_oauthbearer_token_endpoint_url"
_OIDC_CLIENT_ID = "sasl_oauthbearer_client_credentials_client_id"
_OIDC_CLIENT_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105 - a name
_OIDC_ASSERTION = "sasl_oauthbearer_assertion_file"
_FOR_OIDC = ("https_ca_location", "https_ca_pem", _OIDC_ASSERTION)

_RETRIEVER = "org.apache.kafka.common.security.oauthbearer.{}JwtRetriever"
_JWT_BEARER = _RETRIEVER.format("JwtBearer")


class SecurityOptions(Options):
    """The options of every client that are about security."""

    security_protocol: str = _SECURITY.option(
        "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", ignore_case=True)
    )
    """How the client talks to brokers: SSL and SASL_SSL encrypt the connection (TLS);
    SASL_PLAINTEXT and SASL_SSL authenticate this client with sasl_mechanism. With SASL_PLAINTEXT
    anybody on the network can read the data, and with PLAIN or OAUTHBEARER the credentials, too. A
    protocol that leaves certificates or credentials unused is logged as a warning, once."""
    ssl_truststore_location: Path | None = _SECURITY.option(
        None, optional(PATH), aliases=("ssl.ca.location", "ssl.cafile")
    )
    """A PEM file with the trusted certificates: a broker's certificate must be signed by one of
    them. Without it the client uses the operating system's certificates. If the file has changed,
    the client reads it again for a new connection."""
    ssl_truststore_certificates: str | None = _SECURITY.option(
        None, optional(PEM), aliases=("ssl.ca.pem",)
    )
    """The trusted certificates as PEM text, instead of a file."""
    ssl_truststore_type: str = _SECURITY.option("PEM", one_of("PEM", ignore_case=True))
    """The format of the trusted certificates. Java's own formats, JKS and PKCS12, are not
    supported: `keytool -exportcert -rfc` writes PEM."""
    ssl_keystore_location: Path | None = _SECURITY.option(
        None, optional(PATH), aliases=("ssl.certificate.location", "ssl.certfile")
    )
    """A PEM file for brokers that require a client certificate. It has this client's certificate,
    the intermediate certificates, and the private key (unless ssl_key_location names another file).
    If the file has changed, the client reads it again for a new connection."""
    ssl_key_location: Path | None = _SECURITY.option(None, optional(PATH), aliases=("ssl.keyfile",))
    """The PEM file of the private key, if the key is not in ssl_keystore_location."""
    ssl_keystore_certificate_chain: str | None = _SECURITY.option(
        None, optional(PEM), aliases=("ssl.certificate.pem",)
    )
    """This client's certificate and the intermediate certificates, as PEM text."""
    ssl_keystore_key: str | None = _SECURITY.option(
        None, optional(PEM), aliases=("ssl.key.pem",), secret=True
    )
    """The private key of the client's certificate, as PEM text (PKCS#8, also encrypted)."""
    ssl_keystore_type: str = _SECURITY.option("PEM", one_of("PEM", ignore_case=True))
    """The format of this client's certificate and key."""
    ssl_key_password: str | None = _SECURITY.option(
        None, optional(VERBATIM), aliases=("ssl.password",), secret=True
    )
    """The password of the private key."""
    ssl_endpoint_identification_algorithm: str = _SECURITY.option(
        "https", one_of("https", "", ignore_case=True)
    )
    """https checks that a broker's certificate is for the host name or address that the client
    connects to. An empty string disables the check; then every owner of a certificate of the same
    authority can impersonate the broker."""
    ssl_endpoint_hostname: str | None = _SECURITY.option(None, optional(HOST_NAME))
    """The host name that brokers' certificates must be for, instead of the name or address that the
    client connects to. The client also sends this name in the TLS handshake (SNI). The option is
    for brokers behind a tunnel or a proxy, and applies to all brokers, including the bootstrap
    servers. Java's clients have no such option."""
    ssl_enabled_protocols: tuple[str, ...] = _SECURITY.option(
        ("TLSv1.2", "TLSv1.3"), some_of("TLSv1.2", "TLSv1.3")
    )
    """The versions of TLS that the client offers."""
    ssl_context: ssl.SSLContext | None = _SECURITY.option(None, optional(SSL_CONTEXT))
    """Your own ssl.SSLContext. The client uses it unchanged, instead of all other ssl options."""

    sasl_mechanism: str | None = _LOGIN.option(
        None, optional(one_of(*_MECHANISMS, ignore_case=True)), aliases=("sasl.mechanisms",)
    )
    """How this client authenticates. It must be given with SASL_PLAINTEXT and SASL_SSL; Java's
    default is GSSAPI (Kerberos). AWS_MSK_IAM is OAUTHBEARER with tokens of
    kafkaclient.aws.MskIamTokenProvider, for Amazon MSK."""
    sasl_username: str | None = _LOGIN.option(
        None, optional(VERBATIM), aliases=("sasl.plain.username",)
    )
    """The user name, for PLAIN and SCRAM."""
    sasl_password: str | None = _LOGIN.option(
        None, optional(VERBATIM), aliases=("sasl.plain.password",), secret=True
    )
    """The user's password."""
    sasl_jaas_config: str | None = _LOGIN.option(None, optional(TEXT), secret=True)
    """The credentials in Java's syntax, `org.apache.kafka.common.security.scram.ScramLoginModule
    required username="..." password="...";` (or plain.PlainLoginModule), and for OIDC
    oauthbearer.OAuthBearerLoginModule with clientId, clientSecret, scope and extension_NAME. For
    AWS_MSK_IAM `software.amazon.msk.auth.iam.IAMLoginModule required;` with awsProfileName,
    awsRoleArn, awsRoleSessionName, awsRoleExternalId and awsStsRegion, all of them optional. For
    GSSAPI `com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="..."
    principal="...";`, or useTicketCache=true with or without ticketCache."""
    sasl_kerberos_service_name: str = _LOGIN.option("kafka", FILLED_TEXT)
    """The first part of the brokers' Kerberos principals, as in `kafka/broker.example.org@REALM`.
    Java has no default."""
    sasl_kerberos_domain_name: str | None = _LOGIN.option(None, optional(HOST_NAME))
    """The host name in the brokers' principals, instead of the name or address that the client
    connects to, as for brokers behind a load balancer. The name is aiokafka's."""
    sasl_kerberos_keytab: Path | None = _LOGIN.option(None, optional(PATH))
    """The keytab with the key of sasl_kerberos_principal, for GSSAPI. Without it the client uses
    the tickets of a cache, which `kinit` or a daemon such as `k5start` has to renew."""
    sasl_kerberos_principal: str | None = _LOGIN.option(None, optional(FILLED_TEXT))
    """This client's Kerberos principal, as in `alice@EXAMPLE.ORG`. With a ticket cache it is not
    needed. The name is librdkafka's."""
    sasl_kerberos_ticket_cache: str | None = _LOGIN.option(None, optional(FILLED_TEXT))
    """The ticket cache: a file, or what KRB5CCNAME may name, such as `KCM:`. Without it the client
    uses the default cache of the process."""
    sasl_kerberos_ticket_renew_window_factor: float = _LOGIN.option(0.8, number(0, 1))
    """After this share of a ticket's life the client logs in again. If that fails, the ticket is
    used until it ends."""
    sasl_kerberos_min_time_before_relogin: int = _LOGIN.option(60_000, integer(0))
    """The pause in milliseconds between logins that fail while a ticket is valid, at most a 20th of
    its life; and before the login that follows because a broker refused a ticket."""
    sasl_oauth_token_provider: Any = _LOGIN.option(
        None, optional(TOKEN_PROVIDER), secret=True
    )  # it may hold some, and show them in its repr
    """The source of tokens for OAUTHBEARER: an async function without arguments, or an object with
    an async method token(), that returns a kafkaclient.Token. Property files and Spark's options
    give its path, as in `mycompany.kafka:provider`; a class is called without arguments. The client
    calls it again after 80 % of a token's lifetime, once for all connections. The client retries
    after an error that it raises, unless the error is a kafkaclient.errors.AuthenticationError."""
    sasl_oauthbearer_extensions: Mapping[str, str] | None = _LOGIN.option(
        None, optional(SASL_EXTENSIONS)
    )
    """SASL extensions that the client sends with each token (KIP-342), for example
    `logicalCluster=lkc-1,identityPoolId=pool-1` for Confluent Cloud. An extension of the token
    itself comes first. The name of the option is librdkafka's."""
    sasl_oauthbearer_token_endpoint_url: str | None = _LOGIN.option(None, optional(TEXT))
    """The https address of the identity provider's token endpoint. With it OAUTHBEARER requests
    tokens itself, with OIDC's client credentials (KIP-768)."""
    sasl_oauthbearer_client_credentials_client_id: str | None = _LOGIN.option(
        None, optional(TEXT), aliases=("sasl.oauthbearer.client.id",)
    )
    """The client's id at the identity provider."""
    sasl_oauthbearer_client_credentials_client_secret: str | None = _LOGIN.option(
        None, optional(VERBATIM), aliases=("sasl.oauthbearer.client.secret",), secret=True
    )
    """The client's secret at the identity provider."""
    sasl_oauthbearer_scope: str | None = _LOGIN.option(None, optional(TEXT))
    """The scope to request, if the identity provider requires one."""
    sasl_oauthbearer_assertion_file: Path | None = _LOGIN.option(None, optional(PATH))
    """A file with a signed JWT that proves this client to the identity provider in place of its
    secret (KIP-1258), such as the token of a Kubernetes service account. The client reads it for
    each request; whatever wrote it keeps it fresh. A client id is not needed."""
    sasl_oauthbearer_jwt_retriever_class: str = _LOGIN.option(
        _RETRIEVER.format("Default"),
        one_of(_RETRIEVER.format("Default"), _RETRIEVER.format("ClientCredentials"), _JWT_BEARER),
    )
    """How tokens are requested, by the names of Java's classes: JwtBearerJwtRetriever sends the JWT
    in sasl_oauthbearer_assertion_file as the grant (KIP-1139), the others send client
    credentials."""
    https_ca_location: Path | None = _LOGIN.option(None, optional(PATH))
    """A PEM file with the trusted certificates for the identity provider. Without it the client
    uses the operating system's certificates. ssl_truststore_location is for brokers only, as in
    Java, where the option ssl.truststore.location of the login module in sasl.jaas.config has this
    purpose. The name https.ca.location is librdkafka's."""
    https_ca_pem: str | None = _LOGIN.option(None, optional(PEM))
    """The trusted certificates for the identity provider as PEM text, instead of a file."""

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_jwt_bearer(self) -> bool:
        return self.sasl_oauthbearer_jwt_retriever_class == _JWT_BEARER

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")


_FOR_TLS = (
    "ssl_truststore_location",
    "ssl_truststore_certificates",
    "ssl_keystore_location",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
    "ssl_key_location",
    "ssl_context",
)
_WITH_KEY = ("ssl_keystore_location", "ssl_keystore_key")
_FOR_ANY_TLS = (*_FOR_TLS, "ssl_endpoint_hostname", "ssl_key_password")
_FOR_TICKETS = (
    "sasl_kerberos_keytab",
    "sasl_kerberos_principal",
    "sasl_kerberos_ticket_cache",
    "sasl_kerberos_domain_name",
)
_FOR_SASL = (
    "sasl_username",
    "sasl_password",
    "sasl_jaas_config",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_extensions",
    *_FOR_OIDC,
    *_FOR_TICKETS,
)
_FOR_PASSWORDS = ("sasl_username", "sasl_password")
_FOR_TOKENS = (
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
    _OIDC_CLIENT_ID,
    _OIDC_CLIENT_SECRET,
)


def settle_security(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    """Check which options go together, and read the credentials in sasl.jaas.config.

    Raises ConfigError. Its message names options, and shows no secret value.
    """
    protocol = values["security_protocol"]
    tls, sasl = protocol in ("SSL", "SASL_SSL"), protocol.startswith("SASL_")
    if "security_protocol" not in given:
        # Credentials without a protocol are a mistake; with PLAINTEXT they are a decision.
        for names, wanted in ((_FOR_ANY_TLS, "SSL or SASL_SSL"), (_FOR_SASL, "SASL_SSL")):
            for name in names:
                if values[name] is not None:
                    raise ConfigError(
                        f"{given[name].spelling} is given, but security_protocol is not, which "
                        f"leaves it at PLAINTEXT: give security_protocol={wanted}"
                    )
    if tls:
        _settle_tls(values, given)
    else:
        _warn_of_unused("security.protocol", protocol, _FOR_ANY_TLS, given)
    if sasl:
        _settle_sasl(values, given)
    else:
        unused = (*_FOR_SASL, _OIDC_CLIENT_ID, _OIDC_CLIENT_SECRET)
        _warn_of_unused("security.protocol", protocol, unused, given)


def _warn_of_unused(
    option: str, value: str, names: tuple[str, ...], given: Mapping[str, Given]
) -> None:
    """No error: property files of two environments may differ in the protocol alone."""
    unused = (given[name] for name in names if name in given)
    spellings = [each.spelling for each in unused if each.value is not None and each.value != ""]
    if spellings:
        _warn_once(
            f"{option}={value} ignores {', '.join(spellings)}: remove what is not needed, or give "
            f"another {option}"
        )


@cache
def _warn_once(text: str) -> None:
    """Programs build the same configuration several times. ``text`` has no values of options but
    the protocol and the mechanism, so there are few texts."""
    _log.warning("%s", text)


def _settle_tls(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    if values["ssl_context"] is not None:
        others = [name for name in _FOR_TLS if values[name] is not None and name != "ssl_context"]
        if others:
            raise ConfigError(
                f"ssl_context is given, which is used as it is; {given[others[0]].spelling} would "
                "have no effect: give one of them"
            )
    for one, other in (
        ("ssl_truststore_location", "ssl_truststore_certificates"),
        ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
        ("ssl_keystore_location", "ssl_keystore_key"),
    ):
        if values[one] is not None and values[other] is not None:
            raise ConfigError(f"{given[one].spelling} and {given[other].spelling}: give one")
    for one, other in (
        ("ssl_keystore_certificate_chain", "ssl_keystore_key"),
        ("ssl_keystore_key", "ssl_keystore_certificate_chain"),
        ("ssl_key_location", "ssl_keystore_location"),
    ):
        if values[one] is not None and values[other] is None:
            raise ConfigError(
                f"{given[one].spelling} needs {other}: a certificate and its key go together"
            )
    if values["ssl_key_password"] and not any(values[name] for name in _WITH_KEY):
        raise ConfigError(
            f"{given['ssl_key_password'].spelling} is given, and no private key: give "
            f"{' or '.join(_WITH_KEY)}"
        )


def _settle_sasl(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    mechanism, protocol = values["sasl_mechanism"], values["security_protocol"]
    if mechanism is None:
        raise ConfigError(
            f"security_protocol={protocol} needs sasl_mechanism: give one of "
            f"{', '.join(_MECHANISMS)}"
        )
    chosen = mechanism
    if mechanism == MSK_IAM:
        _refuse_beside(MSK_IAM, values, ("sasl_oauth_token_provider", _OIDC_URL))
        values["sasl_oauth_token_provider"] = msk_provider(values)
        values["sasl_mechanism"] = mechanism = "OAUTHBEARER"
    elif values["sasl_jaas_config"] is not None:
        apply_jaas(values, given)
    if mechanism == "OAUTHBEARER":
        _warn_of_unused("sasl.mechanism", chosen, _FOR_PASSWORDS, given)
        _settle_oauth(values)
        return
    if mechanism == "GSSAPI":
        _warn_of_unused("sasl.mechanism", mechanism, (*_FOR_PASSWORDS, *_FOR_TOKENS), given)
        _settle_kerberos(values)
        return
    _warn_of_unused("sasl.mechanism", mechanism, (*_FOR_TOKENS, *_FOR_TICKETS), given)
    _refuse_beside(
        f"sasl_mechanism={mechanism}", values, ("sasl_oauthbearer_extensions", *_FOR_OIDC)
    )
    _need(values, mechanism, "sasl_username", "sasl_password")
    for name in ("sasl_username", "sasl_password"):
        if "\0" in values[name] or not values[name] or not _is_unicode(values[name]):
            raise ConfigError(f"{name} must be text, not empty, without a NUL character")


def _settle_kerberos(values: Mapping[str, Any]) -> None:
    keytab, cache = "sasl_kerberos_keytab", "sasl_kerberos_ticket_cache"
    if values[keytab] is not None and values[cache] is not None:
        raise ConfigError(f"{keytab} and {cache}: give one")
    if values[keytab] is not None and values["sasl_kerberos_principal"] is None:
        raise ConfigError(f"{keytab} needs sasl_kerberos_principal: whose key it is")
    for name in ("sasl_kerberos_service_name", "sasl_kerberos_principal"):
        if "\0" in (values[name] or "") or not _is_unicode(values[name] or ""):
            raise ConfigError(f"{name} must be text without a NUL character")


def _settle_oauth(values: dict[str, Any]) -> None:
    if values["https_ca_location"] is not None and values["https_ca_pem"] is not None:
        raise ConfigError("https_ca_location and https_ca_pem: give one")
    if values["sasl_oauth_token_provider"] is None:
        if values["sasl_oauthbearer_token_endpoint_url"] is None:
            raise ConfigError(
                "sasl_mechanism=OAUTHBEARER needs sasl_oauth_token_provider, or "
                "sasl_oauthbearer_token_endpoint_url with a client id and secret"
            )
        if values["sasl_oauthbearer_jwt_retriever_class"] == _JWT_BEARER:
            _need(values, "JwtBearerJwtRetriever", _OIDC_ASSERTION)
        if values[_OIDC_ASSERTION] is None:
            _need(values, "OIDC", _OIDC_CLIENT_ID, _OIDC_CLIENT_SECRET)
        url = values["sasl_oauthbearer_token_endpoint_url"]
        if not url.lower().startswith(("https://", "http://")):
            raise ConfigError(
                "sasl_oauthbearer_token_endpoint_url must begin with https:// (or http://, for "
                "tests: the client's secret is then sent in the clear)"
            )
        try:
            urlsplit(url).port  # noqa: B018 - raises ValueError
        except ValueError as error:
            raise ConfigError(f"sasl_oauthbearer_token_endpoint_url: {error}") from error
        return
    _refuse_beside("sasl_oauth_token_provider", values, (_OIDC_URL, *_FOR_OIDC))
    values["sasl_oauth_token_provider"] = ready_provider(values)


def _refuse_beside(chosen: str, values: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if values[name] is not None:
            raise ConfigError(
                f"{name} would have no effect: {chosen} does not use it; give one of them"
            )


def _need(values: dict[str, Any], mechanism: str, *names: str) -> None:
    missing = [name for name in names if values[name] is None]
    if missing:
        raise ConfigError(f"{mechanism} needs {' and '.join(missing)} (or sasl_jaas_config)")


def _is_unicode(text: str) -> bool:
    """Whether the text can be sent: bytes that were not UTF-8 become lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
