"""Checks of how the options of encryption and authentication go together."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kafkaclient.config.security import JWT_BEARER, MECHANISMS
from kafkaclient.config.token_providers import MSK_IAM, apply_jaas, msk_provider, ready_provider
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.config.options import Given

_log = logging.getLogger(__name__)

_OIDC_URL = "sasl_oauthbearer_token_endpoint_url"
_OIDC_CLIENT_ID = "sasl_oauthbearer_client_credentials_client_id"
_OIDC_CLIENT_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105 - a name
_OIDC_ASSERTION = "sasl_oauthbearer_assertion_file"
_FOR_OIDC = ("https_ca_location", "https_ca_pem", _OIDC_ASSERTION)

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
_PASSWORD_OF = {
    "ssl_truststore_password": "ssl_truststore_location",
    "ssl_keystore_password": "ssl_keystore_location",
}
_FOR_ANY_TLS = (*_FOR_TLS, "ssl_endpoint_hostname", "ssl_key_password", *_PASSWORD_OF)
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
    for password, store in _PASSWORD_OF.items():
        if values[password] and values[store] is None:
            raise ConfigError(f"{given[password].spelling} is given, and no {store}")
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
            f"{', '.join(MECHANISMS)}"
        )
    chosen = mechanism
    if mechanism == MSK_IAM:
        _refuse_beside(MSK_IAM, values, ("sasl_oauth_token_provider", _OIDC_URL))
        values["sasl_oauth_token_provider"] = msk_provider(values)
        values["sasl_mechanism"] = mechanism = "OAUTHBEARER"
    elif values["sasl_jaas_config"] is not None:
        apply_jaas(values, given)
    if values["sasl_tokenauth"] and not mechanism.startswith("SCRAM"):
        raise ConfigError(
            f"sasl_tokenauth would have no effect with sasl_mechanism={mechanism}: a delegation "
            "token needs SCRAM-SHA-256 or SCRAM-SHA-512"
        )
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
        if values["sasl_oauthbearer_jwt_retriever_class"] == JWT_BEARER:
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
