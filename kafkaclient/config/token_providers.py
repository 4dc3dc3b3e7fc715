"""Token providers and passwords of logins, also from Java's JAAS texts."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.config.kinds import (
    BOOLEAN,
    FILLED_TEXT,
    PATH,
    PEM,
    SASL_EXTENSIONS,
    VERBATIM,
    Kind,
    one_of,
)
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkaclient.config.options import Given


# --- Makes the token provider that options name: by its path --------------------------------------

_MSK_PROVIDER = "kafkaclient.aws:MskIamTokenProvider"

# The option of aws-msk-iam-auth's login module -> the argument of our provider.
_MSK_ARGUMENTS = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "awsRoleExternalId": "role_external_id",
    "awsStsRegion": "sts_region",
}


def ready_provider(values: Mapping[str, Any]) -> Any:
    """The given provider, loaded if it was given by its path, and for the given brokers.

    A provider with a method ``for_brokers(host_names)`` is replaced by the result of this method.
    Raises ConfigError for a path that leads nowhere, and what these methods raise.
    """
    provider = values["sasl_oauth_token_provider"]
    if isinstance(provider, str):
        provider = _load(provider)
    for_brokers = getattr(provider, "for_brokers", None)
    if for_brokers is None:
        return provider
    return for_brokers(tuple(host for host, _ in values["bootstrap_servers"]))


def msk_provider(values: Mapping[str, Any]) -> Any:
    """The provider for ``sasl.mechanism=AWS_MSK_IAM``, with the options of the login module in
    ``sasl.jaas.config``. Raises ConfigError for other options."""
    arguments: dict[str, str] = {}
    if values["sasl_jaas_config"] is not None:
        _, options = login_module(values)
        for number, (word, text) in enumerate(options.items(), 1):
            if word not in _MSK_ARGUMENTS:
                raise ConfigError(
                    f"sasl.jaas.config: option {number} for {MSK_IAM} is none of those that "
                    f"kafkaclient knows: {', '.join(_MSK_ARGUMENTS)}"
                )
            arguments[_MSK_ARGUMENTS[word]] = text
    return _load(_MSK_PROVIDER, **arguments)


def _load(path: str, **arguments: str) -> Any:
    """The object at ``package.module:name``; a class is called with the arguments."""
    module_name, _, name = path.partition(":")
    try:
        found = getattr(import_module(module_name), name)
        provider = found(**arguments) if isinstance(found, type) else found
    except ConfigError:
        raise
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"sasl_oauth_token_provider={path} cannot be loaded: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(  # the text of a foreign error may have secrets
            f"sasl_oauth_token_provider={path} cannot be loaded: it raised {type(error).__name__}"
        ) from error
    if not callable(provider) and not callable(getattr(provider, "token", None)):
        raise ConfigError(
            f"sasl_oauth_token_provider={path} is a {type(provider).__name__}: it must be an async "
            "function () -> Token, or an object or class with such a method token"
        )
    return provider


# --- Reads credentials from ``sasl.jaas.config``, as Java's clients have them ---------------------
# The whole text is a secret: messages say where it is wrong, and never quote it.

MSK_IAM = "AWS_MSK_IAM"
"""The mechanism of aws-msk-iam-auth, Amazon's library for Java."""

_KRB5 = "Krb5LoginModule"

# The login module's class, without its package -> the mechanisms for which the module is.
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "IAMLoginModule": (MSK_IAM,),
    _KRB5: ("GSSAPI",),
}

# The login module's option -> the client's option with this meaning, and the kind of its value.
_OPTIONS: dict[str, tuple[str, Kind[Any]]] = {
    "username": ("sasl_username", VERBATIM),
    "password": ("sasl_password", VERBATIM),
    "tokenauth": ("sasl_tokenauth", BOOLEAN),
    "clientId": ("sasl_oauthbearer_client_credentials_client_id", VERBATIM),
    "clientSecret": ("sasl_oauthbearer_client_credentials_client_secret", VERBATIM),
    "scope": ("sasl_oauthbearer_scope", VERBATIM),
    "ssl.truststore.location": ("https_ca_location", PATH),
    "ssl.truststore.certificates": ("https_ca_pem", PEM),
}
_KRB5_OPTIONS: dict[str, tuple[str, Kind[Any]]] = {
    "principal": ("sasl_kerberos_principal", FILLED_TEXT),
    "keyTab": ("sasl_kerberos_keytab", PATH),
    "ticketCache": ("sasl_kerberos_ticket_cache", FILLED_TEXT),
    "serviceName": ("sasl_kerberos_service_name", FILLED_TEXT),
}
_KRB5_SWITCHES = ("useKeyTab", "useTicketCache")
# Options of Krb5LoginModule about Java's own ways, and what many files say that it does not know.
_KRB5_WITHOUT_EFFECT = frozenset(
    {
        *("storeKey", "doNotPrompt", "refreshKrb5Config", "debug", "renewTGT", "renewTicket"),
        *("isInitiator", "clearPass", "useFirstPass", "tryFirstPass", "storePass"),
    }
)
_EXTENSION = "extension_"  # the rest of the word is the name of a SASL extension (KIP-342)
_FORMAT = one_of("PEM", ignore_case=True)  # of ssl.truststore.type, which has no other value

_CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

# The tokens of Java's StreamTokenizer: quoted strings (which end with their line), words, signs.
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\r\n]*|/\*.*?\*/)
    |(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?P=quote)
    |(?P<word>[^\s"'=;/]+)
    |(?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def apply_jaas(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    """Set the options that ``sasl.jaas.config`` names. Raises ConfigError, also if the user gave
    one of these options another value.
    """
    name, options = login_module(values)
    if name == _KRB5:
        _apply_krb5(values, given, options)
        return
    extensions: dict[str, str] = {}
    for number, (word, text) in enumerate(options.items(), 1):
        if word == "ssl.truststore.type":
            _read(_FORMAT, word, text)
            continue
        if word.startswith(_EXTENSION) and name == "OAuthBearerLoginModule":
            extensions |= _read(SASL_EXTENSIONS, word, {word.removeprefix(_EXTENSION): text})
            continue
        if word not in _OPTIONS:
            raise ConfigError(
                f"sasl.jaas.config: option {number} of {name} is none of those that kafkaclient "
                f"knows: {', '.join(_OPTIONS)}, and {_EXTENSION}NAME for OAUTHBEARER"
            )
        option, kind = _OPTIONS[word]
        _set(values, given, option, _read(kind, word, text))
    if extensions:
        _set(values, given, "sasl_oauthbearer_extensions", extensions)


def _apply_krb5(
    values: dict[str, Any], given: Mapping[str, Given], options: Mapping[str, str]
) -> None:
    """As Java's module does it, a keytab and a cache count only if they are to be used."""
    on = {word: _read(BOOLEAN, word, options.get(word, "false")) for word in _KRB5_SWITCHES}
    if on["useKeyTab"] == ("keyTab" not in options) or not any(on.values()):
        raise ConfigError(
            f"sasl.jaas.config: {_KRB5} needs useKeyTab=true with keyTab and principal, or "
            "useTicketCache=true"
        )
    for number, (word, text) in enumerate(options.items(), 1):
        if word in _KRB5_OPTIONS:
            option, kind = _KRB5_OPTIONS[word]
            # Java tries the cache first. The keytab gives a ticket whenever a cache has ended.
            if not (word == "ticketCache" and on["useKeyTab"]):
                _set(values, given, option, _read(kind, word, text))
        elif word not in _KRB5_WITHOUT_EFFECT and word not in _KRB5_SWITCHES:
            raise ConfigError(
                f"sasl.jaas.config: option {number} of {_KRB5} is none of those that kafkaclient "
                f"knows: {', '.join((*_KRB5_SWITCHES, *_KRB5_OPTIONS))}"
            )


def login_module(values: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """The login module in ``sasl.jaas.config``: the name of its class, and its options. Raises
    ConfigError for a module that is not for the mechanism."""
    module = parse_jaas(values["sasl_jaas_config"])
    name = module.class_name.rpartition(".")[2]
    mechanisms = _MODULES.get(name)
    if mechanisms is None:
        raise ConfigError(
            f"sasl.jaas.config names another login module than {', '.join(_MODULES)}, which are "
            "those that kafkaclient knows"
        )
    if values["sasl_mechanism"] not in mechanisms:
        raise ConfigError(
            f"sasl.jaas.config names {name}, which is for {' and '.join(mechanisms)}, but "
            f"sasl_mechanism is {values['sasl_mechanism']}"
        )
    return name, module.options


def _set(values: dict[str, Any], given: Mapping[str, Given], option: str, value: Any) -> None:
    if option in given and values[option] != value:
        raise ConfigError(
            f"{given[option].spelling} and sasl.jaas.config name different values; give one of them"
        )
    values[option] = value


def _read(kind: Kind[Any], word: str, text: object) -> Any:
    try:
        return kind.read(text)
    except (LookupError, TypeError, ValueError):
        raise ConfigError(f"sasl.jaas.config: {word} must be {kind.accepts}") from None


class LoginModule(NamedTuple):
    """The one entry of a JAAS configuration."""

    class_name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.class_name}, options hidden)"


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_jaas(text: str) -> LoginModule:
    """The login module of ``<class> required name="value" ...;`` and its options.

    Quotes, escapes and comments are as in Java's ``JaasConfig``. Raises ConfigError for any other
    text, and for more than one module.
    """
    tokens = _tokens(text)
    class_name = _expect(tokens, "word", "the name of a login module").text
    flag = _expect(tokens, "word", "a control flag such as required")
    if flag.text.lower() not in _CONTROL_FLAGS:
        raise _wrong(flag, "a control flag such as required")
    options: dict[str, str] = {}
    while (name := next(tokens)).kind == "word":
        equals = next(tokens)
        if equals.text != "=" or equals.kind != "sign":
            raise _wrong(equals, "'=' after the name of an option")
        value = next(tokens)
        if value.kind not in ("word", "quoted"):
            raise _wrong(value, "the value of an option")
        options[name.text] = value.text
    if name.kind != "sign" or name.text != ";":
        raise _wrong(name, "a further option, or ';' at the end")
    if (rest := next(tokens)).kind != "end":
        raise _wrong(rest, "nothing after the ';' (one login module is what there can be)")
    return LoginModule(class_name, options)


def _tokens(text: str) -> Iterator[_Token]:
    """The text's tokens, then ``end`` tokens without end."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            yield _Token("unreadable", "", at)
            break
        if match["quote"]:
            yield _Token("quoted", _ESCAPE.sub(_character, match["text"]), at)
        elif match["word"]:
            yield _Token("word", match["word"], at)
        elif match["sign"]:
            yield _Token("sign", match["sign"], at)
        at = match.end()
    while True:
        yield _Token("end", "", len(text))


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROL.get(code, code)


def _expect(tokens: Iterator[_Token], kind: str, what: str) -> _Token:
    token = next(tokens)
    if token.kind != kind:
        raise _wrong(token, what)
    return token


def _wrong(token: _Token, expected: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read at character {token.at + 1}: expected {expected}. Its "
        'form is: org.apache.kafka.common.security.plain.PlainLoginModule required username="..." '
        'password="...";'
    )
