"""Which security options go together; and that no secret is ever shown."""

from __future__ import annotations

import re
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from docsite.options import PAGES
from kafkaclient.config import ProducerConfig, security_checks
from kafkaclient.errors import ConfigError

SECRET = "hunter2"
PEM = "-----BEGIN X-----\nAAAA\n-----END X-----"
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
ALICE = {"sasl.username": "alice", "sasl.password": SECRET}
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
GSSAPI = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
KEYTAB = {"sasl_kerberos_keytab": "/k", "sasl_kerberos_principal": "alice@REALM"}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
MODULES = "org.apache.kafka.common.security"


async def provide() -> None: ...


def build(**options: Any) -> ProducerConfig:
    return ProducerConfig.build({"bootstrap.servers": "b:9092"}, options)


def refused(**options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build(**options)
    assert SECRET not in str(caught.value)
    return str(caught.value)


# --- spellings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("ssl.ca.location", "ssl_truststore_location"),
        ("ssl_cafile", "ssl_truststore_location"),
        ("ssl.certificate.location", "ssl_keystore_location"),
        ("ssl_certfile", "ssl_keystore_location"),
        ("sasl.mechanisms", "sasl_mechanism"),
        ("sasl_plain_username", "sasl_username"),
        ("sasl_plain_password", "sasl_password"),
        ("sasl.kerberos.keytab", "sasl_kerberos_keytab"),
        ("sasl.oauthbearer.client.id", "sasl_oauthbearer_client_credentials_client_id"),
    ],
)
def test_names_of_other_clients_are_understood(spelling: str, name: str) -> None:
    assert spelling in ProducerConfig.OPTIONS[name].spellings


@pytest.mark.parametrize("given", ["sasl_ssl", "SASL_SSL", " Sasl_Ssl "])
def test_case_does_not_matter_as_in_java(given: str) -> None:
    assert build(**{**PLAIN, **ALICE, "security.protocol": given}).security_protocol == "SASL_SSL"


def test_a_password_keeps_its_blanks() -> None:
    assert build(**PLAIN, sasl_username="a", sasl_password=" x ").sasl_password == " x "


# --- secrets --------------------------------------------------------------------------------------


def test_the_options_with_secrets_say_so() -> None:
    secret = {option.name for option in ProducerConfig.OPTIONS.values() if option.secret}
    assert secret == {
        "ssl_keystore_key",
        "ssl_key_password",
        "ssl_keystore_password",
        "ssl_truststore_password",
        "sasl_password",
        "sasl_jaas_config",
        "sasl_oauth_token_provider",
        "sasl_oauthbearer_client_credentials_client_secret",
    }


def test_secrets_are_not_in_the_repr() -> None:
    jaas = f'{MODULES}.plain.PlainLoginModule required username="alice" password="{SECRET}";'
    config = build(**PLAIN, sasl_jaas_config=jaas)
    assert config.sasl_password == SECRET
    assert SECRET not in repr(config)
    assert "sasl_password=[hidden]" in repr(config)
    assert "sasl_username='alice'" in repr(config)


@pytest.mark.parametrize(
    "options",
    [
        {**PLAIN, "sasl.username": "a", "sasl.password": SECRET, "sasl_password": SECRET + "x"},
        {**PLAIN, "sasl.username": "a", "sasl.password": 5},
        {"ssl.keystore.key": SECRET},
        {"ssl.key.password": SECRET, "ssl_key_password": "other"},
        {**PLAIN, "sasl.jaas.config": SECRET},
        {**PLAIN, "sasl.jaas.config": f"a.{SECRET}", "sasl_jaas_config": "b"},
        {**PLAIN, **ALICE, "sasl.pasword": SECRET},
        {**PLAIN, "ssl.keystore.password": SECRET},
        {**PLAIN, "sasl.username": "a", "sasl.password": SECRET + "\0"},
        {**PLAIN, "sasl.username": "a", "sasl.password": SECRET + "\udc80"},
        {**PLAIN, "sasl_oauthbearer_client_credentials_client_secret": [SECRET]},
    ],
)
def test_secrets_are_not_in_the_message_about_them(options: dict[str, Any]) -> None:
    refused(**options)


# --- what goes together ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ALICE, "sasl.username is given, but security_protocol is not"),
        ({"ssl_cafile": "/ca"}, "ssl_cafile is given, but security_protocol is not"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl_mechanism: give one of PLAIN, SCRAM"),
        (PLAIN, "PLAIN needs sasl_username and sasl_password"),
        ({**PLAIN, "sasl.username": "a"}, "PLAIN needs sasl_password"),
        ({**PLAIN, **ALICE, "sasl.mechanism": "NTLM"}, "give one of PLAIN, SCRAM-SHA-256"),
        (
            {"security.protocol": "SSL", "ssl.truststore.password": SECRET},
            "ssl.truststore.password is given, and no ssl_truststore_location",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.password": SECRET, "ssl_cafile": "/ca"},
            "ssl.keystore.password is given, and no ssl_keystore_location",
        ),
        ({**PLAIN, **ALICE, "sasl.tokenauth": "true"}, "token needs SCRAM-SHA-256 or SCRAM-SHA-51"),
        ({**GSSAPI, **KEYTAB, "sasl_kerberos_ticket_cache": "KCM:"}, "ticket_cache: give one"),
        ({**GSSAPI, "sasl_kerberos_keytab": "/k"}, "needs sasl_kerberos_principal"),
        ({**GSSAPI, "sasl.kerberos.principal": "a\0"}, "principal must be text"),
        ({**GSSAPI, "sasl.kerberos.service.name": ""}, "service.name"),
        (KEYTAB, "keytab is given, but security_protocol is not"),
        ({**GSSAPI, "sasl.kerberos.ticket.renew.jitter": 0.1}, "renewed without kinit"),
        ({**GSSAPI, "sasl.jaas.config": f"{KRB5};"}, "needs useKeyTab=true with keyTab"),
        (
            {**GSSAPI, "sasl.jaas.config": f'{KRB5} keyTab="/k";'},
            "needs useKeyTab=true with keyTab",
        ),
        ({**GSSAPI, "sasl.jaas.config": f"{KRB5} useKeyTab=true;"}, "with keyTab and principal"),
        (
            {**GSSAPI, "sasl.jaas.config": f'{KRB5} useKeyTab=true keyTab="/k";'},
            "needs sasl_kerberos_principal",
        ),
        (
            {**GSSAPI, "sasl.jaas.config": f"{KRB5} useTicketCache=true username=hunter2;"},
            "option 2 of Krb5LoginModule is none of those",
        ),
        (
            {**GSSAPI, "sasl.jaas.config": f"{KRB5} useTicketCache=maybe;"},
            "useTicketCache must be true or false",
        ),
        (
            {
                **GSSAPI,
                "sasl.kerberos.service.name": "other",
                "sasl.jaas.config": f"{KRB5} useTicketCache=true serviceName=kafka;",
            },
            "name different values",
        ),
        (
            {**PLAIN, "sasl.jaas.config": f"{KRB5} useTicketCache=true;"},
            "Krb5LoginModule, which is for GSSAPI",
        ),
        (OAUTH, "needs sasl_oauth_token_provider, or sasl_oauthbearer_token_endpoint_url"),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://i/t"},
            "OIDC needs sasl_oauthbearer_client_credentials_client_id and",
        ),
        (
            {
                **OAUTH,
                "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": SECRET,
            },
            "must begin with https://",
        ),
        (
            {
                **OAUTH,
                "sasl.oauthbearer.token.endpoint.url": "https://i:99999/t",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": SECRET,
            },
            "token_endpoint_url: Port out of range",
        ),
        (
            {
                **OAUTH,
                "sasl.oauthbearer.token.endpoint.url": "https://i/t",
                "sasl_oauth_token_provider": provide,
            },
            "give one",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/a", "ssl.ca.pem": PEM},
            "ssl.ca.location and ssl.ca.pem: give one",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.key": PEM},
            "needs ssl_keystore_certificate_chain",
        ),
        (
            {"security.protocol": "SSL", "ssl.keyfile": "/key"},
            "ssl.keyfile needs ssl_keystore_location",
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl_context": ssl.create_default_context(),
                "ssl_cafile": "/ca",
            },
            "ssl_context is given, which is used as it is; ssl_cafile would have no effect",
        ),
        ({"security.protocol": "SSL", "ssl_context": "default"}, "give an ssl.SSLContext"),
        ({"ssl.truststore.type": "BKS"}, "is not accepted: give one of PEM"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "one or more of TLSv1.2, TLSv1.3"),
        ({"ssl.enabled.protocols": ""}, "one or more of TLSv1.2, TLSv1.3"),
        ({"sasl_oauth_token_provider": "a.Provider"}, "an async function"),
        ({"sasl_oauth_token_provider": f"{SECRET}.eyJh.c2ln"}, "an async function"),
        ({"ssl_key_password": SECRET}, "ssl_key_password is given, but security_protocol is not"),
        (
            {"security.protocol": "SSL", "ssl.key.password": SECRET},
            "ssl.key.password is given, and no private key: give ssl_keystore_location or",
        ),
        ({"ssl.endpoint.hostname": "b"}, "is given, but security_protocol is not"),
        ({"security.protocol": "SSL", "ssl.endpoint.hostname": "b:9093"}, "without a port"),
        ({"security.protocol": "SSL", "ssl.endpoint.hostname": ""}, "give a host name"),
        ({**PLAIN, **ALICE, "https.ca.location": "/ca"}, "https_ca_location would have no effect"),
        ({**PLAIN, **ALICE, "https.ca.pem": PEM}, "sasl_mechanism=PLAIN does not use it"),
        (
            {**PLAIN, **ALICE, "sasl.oauthbearer.extensions": "a=b"},
            "sasl_oauthbearer_extensions would have no effect",
        ),
        (
            {
                **OAUTH,
                "sasl_oauth_token_provider": provide,
                "sasl_oauthbearer_extensions": {"auth": "x"},
            },
            "a dict of names (letters) and values",
        ),
        ({"sasl_oauthbearer_extensions": "a"}, "a dict of names (letters) and values"),
        ({"sasl_oauthbearer_extensions": {"a_b": "c"}}, "a dict of names (letters) and values"),
        (
            {**OAUTH, "sasl_oauth_token_provider": provide, "https.ca.pem": PEM},
            "https_ca_pem would have no effect",
        ),
        ({"https.ca.location": "/ca"}, "https.ca.location is given, but security_protocol is not"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], words: str) -> None:
    assert words in refused(**options)


def test_a_protocol_that_is_given_is_a_decision() -> None:
    """One property file for two environments, which differ in nothing but the protocol."""
    config = build(**{**PLAIN, **ALICE, "security.protocol": "PLAINTEXT"})
    assert not config.uses_sasl
    assert not config.uses_tls


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {**PLAIN, **ALICE, "security.protocol": "PLAINTEXT"},
            "security.protocol=PLAINTEXT ignores sasl.username, sasl.password: remove what is not "
            "needed, or give another security.protocol",
        ),
        (
            {"security.protocol": "SSL", "sasl_jaas_config": SECRET},
            "security.protocol=SSL ignores sasl_jaas_config:",
        ),
        (
            {"security.protocol": "plaintext", "sasl.oauthbearer.client.secret": SECRET},
            "security.protocol=PLAINTEXT ignores sasl.oauthbearer.client.secret:",
        ),
        (
            {**PLAIN, **ALICE, "security.protocol": "SASL_PLAINTEXT", "ssl_cafile": "/ca"},
            "security.protocol=SASL_PLAINTEXT ignores ssl_cafile:",
        ),
        (
            {"security.protocol": "PLAINTEXT", "ssl.key.password": SECRET},
            "security.protocol=PLAINTEXT ignores ssl.key.password:",
        ),
        (
            {**PLAIN, **ALICE, "sasl_oauth_token_provider": provide},
            "sasl.mechanism=PLAIN ignores sasl_oauth_token_provider:",
        ),
        (
            {**OAUTH, **ALICE, "sasl_oauth_token_provider": provide},
            "sasl.mechanism=OAUTHBEARER ignores sasl.username, sasl.password:",
        ),
    ],
)
def test_what_the_protocol_leaves_unused_is_logged_once(
    options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    security_checks._warn_once.cache_clear()
    build(**options)
    build(**options)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(words)
    assert SECRET not in record.getMessage()


@pytest.mark.parametrize(
    "options",
    [
        {**PLAIN, **ALICE, "ssl_cafile": "/ca"},
        {
            **PLAIN,
            "sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required username=a "
            f"password={SECRET};",
        },
        {"security.protocol": "PLAINTEXT", "sasl.username": "", "ssl_cafile": None},
        {"security.protocol": "PLAINTEXT", "sasl.mechanism": "PLAIN", "ssl.truststore.type": "PEM"},
    ],
)
def test_nothing_is_logged_if_no_credentials_are_unused(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    security_checks._warn_once.cache_clear()
    build(**options)
    assert not caplog.records


@pytest.mark.parametrize("name", ["broker.example.org", "b-1_x", "127.0.0.1", "::1", "a.b."])
def test_names_and_addresses_that_can_be_verified(name: str) -> None:
    config = build(security_protocol="SSL", ssl_endpoint_hostname=f" {name} ")
    assert config.ssl_endpoint_hostname == name


def test_another_name_goes_with_ones_own_context() -> None:
    context = ssl.create_default_context()
    config = build(security_protocol="SSL", ssl_context=context, ssl_endpoint_hostname="b")
    assert config.ssl_endpoint_hostname == "b"


def test_an_empty_key_password_is_none() -> None:
    assert build(security_protocol="SSL", ssl_key_password="").ssl_key_password == ""


def test_a_connection_that_is_idle_at_once_is_refused() -> None:
    """It could never be used; Java closes it as well."""
    with pytest.raises(ConfigError, match="a whole number of 1 or more or -1"):
        build(connections_max_idle_ms=0)


# --- providers by their path ----------------------------------------------------------------------


async def by_path() -> None: ...


class ByPath:
    def __init__(self, hosts: tuple[str, ...] = ()) -> None:
        self.hosts = hosts

    async def token(self) -> None: ...

    def for_brokers(self, hosts: tuple[str, ...]) -> ByPath:
        return ByPath(hosts)


class Raises:
    def __init__(self) -> None:
        raise RuntimeError(SECRET)


class NeedsArguments:
    def __init__(self, argument: int) -> None: ...


no_provider = 5


def test_a_provider_is_loaded_by_its_path() -> None:
    assert (
        build(**OAUTH, sasl_oauth_token_provider=f" {__name__}:by_path ").sasl_oauth_token_provider
        is sys.modules[__name__].by_path
    )
    provider = build(**OAUTH, sasl_oauth_token_provider=f"{__name__}:ByPath")
    assert provider.sasl_oauth_token_provider.hosts == ("b",)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_module:x", "no_such_module:x cannot be loaded: No module named"),
        (f"{__name__}:absent", "cannot be loaded: module .* has no attribute 'absent'"),
        (f"{__name__}:no_provider", "is a int: it must be an async function"),
        (f"{__name__}:Raises", "Raises cannot be loaded: it raised RuntimeError$"),
        (f"{__name__}:NeedsArguments", "cannot be loaded: it raised TypeError$"),
        ("module_that_exits:x", "cannot be loaded: it raised SystemExit$"),
    ],
)
def test_a_path_that_leads_nowhere(
    path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    assert re.search(words, refused(**OAUTH, sasl_oauth_token_provider=path))


# --- extensions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["a=b=c, d=e", {"a": "b=c", "d": "e"}])
def test_extensions_as_text_and_as_a_dict(given: Any) -> None:
    config = build(**OAUTH, sasl_oauth_token_provider=provide, sasl_oauthbearer_extensions=given)
    assert config.sasl_oauthbearer_extensions == {"a": "b=c", "d": "e"}


OIDC_IN_JAVAS_WORDS = {
    **OAUTH,
    "sasl.oauthbearer.token.endpoint.url": "https://i/t",
    "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.secured."
    "OAuthBearerLoginCallbackHandler",
    "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId='c' "
    f"clientSecret='{SECRET}' extension_logicalCluster='lkc-1' extension_identityPoolId='pool-1';",
}


def test_extensions_in_javas_words() -> None:
    """Confluent Cloud's documented settings for Java."""
    config = build(**OIDC_IN_JAVAS_WORDS)
    assert config.sasl_oauthbearer_extensions == {
        "logicalCluster": "lkc-1",
        "identityPoolId": "pool-1",
    }
    assert "different values" in refused(
        **OIDC_IN_JAVAS_WORDS, sasl_oauthbearer_extensions="logicalCluster=lkc-2"
    )


# --- sasl.jaas.config -----------------------------------------------------------------------------


def test_oidc_in_javas_words() -> None:
    config = build(
        **OAUTH,
        sasl_oauthbearer_token_endpoint_url="https://i/t",
        sasl_jaas_config=f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="c" clientSecret="{SECRET}" scope="s";',
    )
    assert config.sasl_oauthbearer_client_credentials_client_id == "c"
    assert config.sasl_oauthbearer_client_credentials_client_secret == SECRET
    assert config.sasl_oauthbearer_scope == "s"


def test_whom_to_trust_with_the_clients_secret_in_javas_words() -> None:
    config = build(
        **OAUTH,
        sasl_oauthbearer_token_endpoint_url="https://i/t",
        sasl_jaas_config=f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="c" clientSecret="{SECRET}" ssl.truststore.type=pem '
        'ssl.truststore.location="/etc/idp.pem";',
    )
    assert config.https_ca_location == Path("/etc/idp.pem")
    assert config.ssl_truststore_location is None, "that is for brokers"


@pytest.mark.parametrize(
    ("jaas", "more", "words"),
    [
        ("ssl.truststore.type=JKS", {}, "ssl.truststore.type must be one of PEM"),
        ("ssl.truststore.certificates=x", {}, "ssl.truststore.certificates must be PEM text"),
        ('ssl.truststore.location=""', {}, "ssl.truststore.location must be a path"),
        ('ssl.truststore.location="/a"', {"https.ca.pem": PEM}, "https_ca_pem: give one"),
        (
            'ssl.truststore.location="/a"',
            {"https.ca.location": "/b"},
            "https.ca.location and sasl.jaas.config name different values",
        ),
    ],
)
def test_whom_to_trust_must_be_clear(jaas: str, more: dict[str, Any], words: str) -> None:
    assert words in refused(
        **OAUTH,
        sasl_oauthbearer_token_endpoint_url="https://i/t",
        sasl_jaas_config=f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="c" clientSecret="{SECRET}" {jaas};',
        **more,
    )


@pytest.mark.parametrize(
    ("jaas", "more", "words"),
    [
        (f"{SECRET} required a=b;", {}, "names another login module than PlainLoginModule, Scram"),
        (
            f'{MODULES}.scram.ScramLoginModule required username="a" password="{SECRET}";',
            {},
            "which is for SCRAM-SHA-256 and SCRAM-SHA-512, but sasl_mechanism is PLAIN",
        ),
        (
            f'{MODULES}.plain.PlainLoginModule required username="a" {SECRET}="true";',
            {},
            "option 2 of PlainLoginModule is none of those that kafkaclient knows: username",
        ),
        (
            f'{MODULES}.plain.PlainLoginModule required username="a" password="{SECRET}";',
            {"sasl.password": "other"},
            "sasl.password and sasl.jaas.config name different values",
        ),
        (f'{MODULES}.plain.PlainLoginModule required username="a";', {}, "needs sasl_password"),
    ],
)
def test_login_modules_that_cannot_serve(jaas: str, more: dict[str, Any], words: str) -> None:
    assert words in refused(**PLAIN, sasl_jaas_config=jaas, **more)


def test_the_reference_shows_no_default_that_is_an_object() -> None:
    assert "<object" not in PAGES[0].text()
