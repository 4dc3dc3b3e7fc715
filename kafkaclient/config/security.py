"""The options of encryption and authentication.

Names and meanings are Java's (``SslConfigs``, ``SaslConfigs``). The aliases are the names in
librdkafka, aiokafka and kafka-python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.config.kinds import (
    BOOLEAN,
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
from kafkaclient.config.token_providers import MSK_IAM

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path


_SECURITY = Section("Encryption")
_LOGIN = Section("Authentication")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", MSK_IAM)

_RETRIEVER = "org.apache.kafka.common.security.oauthbearer.{}JwtRetriever"
JWT_BEARER = _RETRIEVER.format("JwtBearer")

_STORE_TYPE = one_of("PEM", "PKCS12", "JKS", ignore_case=True)


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
    """A PEM or PKCS12 file with the trusted certificates: a broker's certificate must be signed by
    one of them. PKCS12 needs the extra pkcs12. Without a file the client uses the operating
    system's certificates. If the file has changed, the client reads it again for a new connection.
    """
    ssl_truststore_certificates: str | None = _SECURITY.option(
        None, optional(PEM), aliases=("ssl.ca.pem",)
    )
    """The trusted certificates as PEM text, instead of a file."""
    ssl_truststore_password: str | None = _SECURITY.option(None, optional(VERBATIM), secret=True)
    """The password of the PKCS12 file with the trusted certificates."""
    ssl_truststore_type: str = _SECURITY.option("PEM", _STORE_TYPE)
    """The format of ssl_truststore_location, which the client knows from the file itself. A file in
    Java's old format JKS is an error that names the command to convert it."""
    ssl_keystore_location: Path | None = _SECURITY.option(
        None, optional(PATH), aliases=("ssl.certificate.location", "ssl.certfile")
    )
    """A PEM or PKCS12 file for brokers that require a client certificate. It has this client's
    certificate, the intermediate certificates, and the private key (unless ssl_key_location names
    another file). If the file has changed, the client reads it again for a new connection."""
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
    ssl_keystore_password: str | None = _SECURITY.option(None, optional(VERBATIM), secret=True)
    """The password of the PKCS12 file in ssl_keystore_location."""
    ssl_keystore_type: str = _SECURITY.option("PEM", _STORE_TYPE)
    """The format of ssl_keystore_location, which the client knows from the file itself."""
    ssl_key_password: str | None = _SECURITY.option(
        None, optional(VERBATIM), aliases=("ssl.password",), secret=True
    )
    """The password of the private key in PEM."""
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
        None, optional(one_of(*MECHANISMS, ignore_case=True)), aliases=("sasl.mechanisms",)
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
    sasl_tokenauth: bool = _LOGIN.option(False, BOOLEAN)
    """Whether sasl_username is the id of a delegation token and sasl_password its HMAC, for SCRAM
    (KIP-48). Java has tokenauth=true in sasl.jaas.config."""
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
        one_of(_RETRIEVER.format("Default"), _RETRIEVER.format("ClientCredentials"), JWT_BEARER),
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
        return self.sasl_oauthbearer_jwt_retriever_class == JWT_BEARER

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")
