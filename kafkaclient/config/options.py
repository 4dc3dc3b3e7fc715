"""How options are declared, how a user's values are checked, and which options are refused.

The refusal of an option of Java's clients or of librdkafka that this client does not have says why
it is not supported. A value without effect passes: an empty one, or one that describes what this
client does anyway. Messages never show values, because some of them are secrets.
"""

from __future__ import annotations

import os
import re
import reprlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform
from urllib.parse import unquote

from kafkaclient.config.kinds import Kind
from kafkaclient.errors import ConfigError
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_CONTEXT = "give an ssl.SSLContext as ssl_context to decide such details"
_KERBEROS = (
    "tickets of a keytab are renewed without kinit, and those of a cache by what made it: see "
    "sasl.kerberos.keytab and sasl.kerberos.principal"
)
_OAUTH = (
    "give sasl_oauth_token_provider for ways to a token other than OIDC client credentials, and "
    "sasl.mechanism=AWS_MSK_IAM for Amazon MSK"
)
_OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.{}oauthbearerlogincallbackhandler"
_REFRESH = "a token is requested again after 80 % of its life"
_LOGIN_PACE = "attempts follow reconnect.backoff.ms and socket.connection.setup.timeout.ms"
_NO_GROUPS = "only kafkaclient.Consumer is a member of groups and commits offsets"
_PYTHON_CLASSES = "Java classes cannot be loaded"

# key -> (why it is not supported, the values without effect)
_KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "auto.commit.interval.ms": (_NO_GROUPS, ("5000",)),
    "auto.offset.reset": (
        "an offset that is not in the log is an error; ask Reader.offsets where to begin",
        ("none",),
    ),
    "bootstrap.resolve.timeout.ms": ("give bootstrap.connect.timeout.ms", ("0",)),
    "client.dns.lookup": (
        "every address of a name is tried, as with use_all_dns_ips",
        ("use_all_dns_ips",),
    ),
    "config.providers": (_PYTHON_CLASSES, ()),
    "consumer.timeout.ms": ("give getmany(timeout_ms=...) where waiting for records must end", ()),
    "enable.auto.offset.store": (
        "take records from tracked(): what may be committed is decided by their done()",
        ("true",),
    ),
    "enable.auto.commit": (_NO_GROUPS, ("false",)),
    "enable.metrics.push": ("only producers and consumers have metrics to push", ("false",)),
    "group.id": (_NO_GROUPS, ()),
    "enable.partition.eof": ("lag() is 0 at the end of a partition", ("false",)),
    "interceptor.classes": (f"{_PYTHON_CLASSES}; see on_delivery and hooks", ()),
    "max.poll.records": ("give getmany(max_records=...); loops get one record at a time", ()),
    "metadata.cluster.check.enable": (
        "every connection proves its cluster before it is used",
        ("true",),
    ),
    "metric.reporters": (f"{_PYTHON_CLASSES}; see hooks, and Producer.metrics()", ()),
    "metrics.recording.level": ("all metrics are recorded at one level", ("info",)),
    "partitioner.class": (
        f"{_PYTHON_CLASSES}; give partitioner=round-robin, uniform-sticky or sticky for Java's "
        "RoundRobinPartitioner, UniformStickyPartitioner and DefaultPartitioner, or an object",
        (),
    ),
    "rebalance.timeout.ms": ("give max_poll_interval_ms", ()),
    "sasl.client.callback.handler.class": (
        _PYTHON_CLASSES,
        ("software.amazon.msk.auth.iam.iamclientcallbackhandler",),
    ),
    "sasl.login.callback.handler.class": (
        f"{_PYTHON_CLASSES}; {_OAUTH}",
        (_OIDC_HANDLER.format(""), _OIDC_HANDLER.format("secured.")),
    ),
    "sasl.login.class": (_PYTHON_CLASSES, ()),
    "sasl.login.connect.timeout.ms": (_LOGIN_PACE, ()),
    "sasl.login.read.timeout.ms": (_LOGIN_PACE, ()),
    "sasl.login.refresh.buffer.seconds": (_REFRESH, ("300",)),
    "sasl.login.refresh.min.period.seconds": (_REFRESH, ("60",)),
    "sasl.login.refresh.window.factor": (_REFRESH, ("0.8",)),
    "sasl.login.refresh.window.jitter": (_REFRESH, ("0.05",)),
    "sasl.login.retry.backoff.max.ms": (_LOGIN_PACE, ("10000",)),
    "sasl.login.retry.backoff.ms": (_LOGIN_PACE, ("100",)),
    "sasl.oauthbearer.header.urlencode": (_OAUTH, ("false",)),
    "sasl.oauthbearer.method": (_OAUTH, ("oidc",)),
    "security.providers": (_PYTHON_CLASSES, ()),
    "ssl.cipher.suites": (_CONTEXT, ()),
    "ssl.engine.factory.class": (_PYTHON_CLASSES, ()),
    "ssl.keymanager.algorithm": (_CONTEXT, ("sunx509", "pkix")),
    "ssl.protocol": ("see ssl.enabled.protocols", ("tlsv1.3", "tlsv1.2", "tls")),
    "ssl.provider": (_PYTHON_CLASSES, ()),
    "ssl.secure.random.implementation": (_CONTEXT, ()),
    "ssl.trustmanager.algorithm": (_CONTEXT, ("pkix",)),
    "transaction.two.phase.commit.enable": (
        "two-phase commit with a store of your own (KIP-939) is not available",
        ("false",),
    ),
    # The beginnings of further keys, the longest first.
    "sasl.kerberos.": (_KERBEROS, ("/usr/bin/kinit", "0.05")),
    "sasl.oauthbearer.assertion.": (_OAUTH, ("rs256", "false", "300", "60")),
    "sasl.oauthbearer.": (
        _OAUTH,
        (
            *("30", "100", "10000", "3600000", "scope", "sub", "false"),
            "org.apache.kafka.common.security.oauthbearer.defaultjwtvalidator",
        ),
    ),
}


_RDKAFKA_TLS = (
    "ssl.curves.list ssl.sigalgs.list ssl.crl.location enable.ssl.certificate.verification "
    "ssl.ca.certificate.stores ssl.providers ssl.engine.location ssl.engine.id"
)
# librdkafka's name -> the option here
_RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "message.send.max.retries": "retries",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.kbytes": "buffer.memory (in bytes)",
    "auto.commit.enable": "enable.auto.commit",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queued.max.messages.kbytes": "fetch.max.bytes (in bytes)",
    "compression.codec": "compression.type",
    "compression.level": "compression.gzip.level, compression.lz4.level, compression.zstd.level",
    **dict.fromkeys(_RDKAFKA_TLS.split(), "an ssl.SSLContext as ssl_context"),
}
_NOT_NEEDED = (
    "topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.fast.cnt "
    "topic.metadata.refresh.sparse topic.metadata.propagation.max.ms queue.buffering.max.messages "
    "batch.num.messages queue.buffering.backpressure.threshold sticky.partitioning.linger.ms "
    "delivery.report.only.error produce.offset.report statistics.interval.ms debug log.level "
    "log.queue log.thread.name log.connection.close socket.keepalive.enable socket.nagle.disable "
    "socket.max.fails broker.address.ttl broker.address.family receive.message.max.bytes "
    "message.copy.max.bytes api.version.request api.version.request.timeout.ms "
    "api.version.fallback.ms broker.version.fallback builtin.features enable.random.seed "
    "internal.termination.signal enabled.events socket.blocking.max.ms "
    "reconnect.backoff.jitter.ms queued.min.messages fetch.error.backoff.ms fetch.queue.backoff.ms "
    "offset.store.method coordinator.query.interval.ms group.protocol.type"
)


def refuse_unsupported(spelling: str, value: object) -> bool:
    """Raise ConfigError for an option that only Java or librdkafka has. True if its value has no
    effect, False if they have no such option either.
    """
    key = spelling.replace("_", ".")
    if key in _RENAMED or key in _NOT_NEEDED.split():
        advice = f"give {_RENAMED[key]}" if key in _RENAMED else "leave it out, it is not needed"
        raise ConfigError(f"{spelling} is an option of librdkafka: {advice}")
    groups = (name for name in _KEYS if name.endswith(".") and key.startswith(name))
    known = key if key in _KEYS else next(groups, None)
    if known is None:
        return False
    reason, harmless = _KEYS[known]
    if value is None or value in ("", [], ()) or str(value).strip().lower() in harmless:
        return True
    raise ConfigError(f"{spelling} is not supported by kafkaclient: {reason}")


# --- How options are declared ---------------------------------------------------------------------

REQUIRED: Any = object()
"""The default of an option that must be given."""

T = TypeVar("T")


class Option:
    """The declaration of an option; ``name`` is Python's spelling, ``kafka_name`` is dotted.

    The value of a ``secret`` option is never shown.
    """

    name: str

    def __init__(
        self, section: str, kind: Kind[Any], default: Any, aliases: tuple[str, ...], secret: bool
    ) -> None:
        self.section = section
        self.kind = kind
        self.default = default
        self.aliases = aliases
        self.secret = secret

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    @property
    def kafka_name(self) -> str:
        return self.name.replace("_", ".")

    @property
    def spellings(self) -> tuple[str, ...]:
        dotted = (self.kafka_name, *self.aliases)
        return (self.name, *dotted, *(alias.replace(".", "_") for alias in self.aliases))


class Given(NamedTuple):
    """A user's value for an option, and the option's name in the user's spelling."""

    spelling: str
    value: Any
    secret: bool = False

    def __repr__(self) -> str:
        return f"{self.spelling}={show(self.value, secret=self.secret)}"


class Section(str):
    """A heading of the reference page; declares the options under this heading."""

    __slots__ = ()

    def option(
        self, default: T, kind: Kind[T], *, aliases: tuple[str, ...] = (), secret: bool = False
    ) -> T:
        """Declare an option of :class:`Options`; ``aliases`` are further dotted names. The text
        after the attribute is its entry on the page of options (docsite/options.py).
        """
        option: Any = Option(self, kind, default, aliases, secret)
        return option  # type: ignore[no-any-return]  # the attribute has the value of the option


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:  # noqa: PLW1641 - dicts among the values have no hash
    """A value for each option that the class and its bases declare. The values do not change.

    It is no dataclass, whose generated methods would take a fifth of the time of an import.
    """

    OPTIONS: ClassVar[Mapping[str, Option]] = {}
    """Every option's declaration, by Python name. The options of the root class come last."""

    def __init_subclass__(cls) -> None:
        own = {name: each for name, each in vars(cls).items() if isinstance(each, Option)}
        last = vars(cls.__mro__[-3])
        declared = sorted({**cls.OPTIONS, **own}.items(), key=lambda item: item[0] in last)
        cls.OPTIONS = MappingProxyType(dict(declared))

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, which are not checked."""
        return type(self)(**vars(self) | changes)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set: the options of a client do not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        """Shows the options that differ from their default."""
        shown = []
        for name, declared in self.OPTIONS.items():
            value = getattr(self, name)
            if value != declared.default:
                shown_value = getattr(value, "__qualname__", repr(value))
                shown.append(f"{name}={'[hidden]' if declared.secret else shown_value}")
        return f"{type(self).__name__}({', '.join(shown)})"


def read_options(
    options: Mapping[str, Option], sources: Iterable[Mapping[str, object]]
) -> dict[str, Given]:
    """The checked values of all sources, by Python name. Raises ConfigError."""
    by_spelling = {name: option for option in options.values() for name in option.spellings}
    given: dict[str, Given] = {}
    for source in sources:
        for spelling, value in source.items():
            if not isinstance(spelling, str):
                raise ConfigError(f"option names are strings, not {show(spelling)}")
            if (option := by_spelling.get(spelling)) is None:
                if not refuse_unsupported(spelling, value):
                    raise ConfigError(_unknown(spelling, by_spelling))
                continue
            now = Given(spelling, _read(option, spelling, value), option.secret)
            before = given.setdefault(option.name, now)
            if before.value != now.value:
                raise ConfigError(
                    f"{before} and {now} name the same option with different values; give one"
                )
    return given


def _read(option: Option, spelling: str, value: object) -> Any:
    try:
        return option.kind.read(value)
    except (ValueError, TypeError, LookupError):
        raise ConfigError(
            f"{spelling}={show(value, secret=option.secret)} is not accepted: give "
            f"{option.kind.accepts}"
        ) from None


def _unknown(spelling: str, known: Iterable[str]) -> str:
    """The message names the closest option, with dots if the user wrote dots."""
    dotted = "." in spelling
    candidates = [name for name in known if ("." in name) == dotted or name.isalpha()]
    from difflib import get_close_matches  # noqa: PLC0415 - for this message alone

    close = get_close_matches(spelling.lower(), candidates, n=1, cutoff=0.6)
    if close:
        return f"unknown option {spelling}: did you mean {close[0]}?"
    return f"unknown option {spelling}: none of kafkaclient's options has a similar name"


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def show(value: object, *, secret: bool = False) -> str:
    """A value for messages: long values are shortened, functions are named, secrets are hidden."""
    if secret:
        return "[hidden]"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return _repr.repr(value)


# --- Where telemetry goes: a folder ---------------------------------------------------------------

_HIDDEN = "[hidden]"
_TOPIC = "topic:"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_ONE_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE)  # a mistaken URI, such as s3:/b
_CONTAINER_BEFORE_AT = ("abfs", "abfss", "wasb", "wasbs", "adl")
"""Schemes in whose URIs a container, which is no secret, comes before the ``@``."""


class TelemetryTarget(NamedTuple):
    """A checked value of the option ``telemetry``. ``str()`` and ``repr()`` hide the user, the
    password and the query of a URI; ``text`` has them."""

    text: str

    @property
    def topic(self) -> str | None:
        """The name in ``topic:NAME``; None for all other targets."""
        return self.text[len(_TOPIC) :] if self.text.lower().startswith(_TOPIC) else None

    @property
    def scheme(self) -> str:
        """The scheme of a URI; empty for a path or a topic."""
        match = _SCHEME.match(self.text)
        return match[1].lower() if match else ""

    @property
    def uri(self) -> str:
        """The URI as pyarrow and fsspec know it: with the scheme in lower case."""
        return self.scheme + self.text[len(self.scheme) :]

    def __str__(self) -> str:
        if not self.scheme:
            return self.text
        whole, query = self._split()
        return f"{self._masked(whole)}?{_HIDDEN}" if query else self._masked(whole)

    def _masked(self, whole: str) -> str:
        """The URI without its query, and without secrets."""
        start, at, rest = whole.rpartition("@")
        if at:
            user, colon, _ = start.partition("://")[2].partition(":")
            shown = user if self.scheme in _CONTAINER_BEFORE_AT else _HIDDEN
            password = f":{_HIDDEN}" if colon and shown is user else ""
            whole = f"{self.scheme}://{shown}{password}@{rest}"
        return whole

    def __repr__(self) -> str:
        return repr(str(self))

    def hide(self, text: str) -> str:
        """The text of an error without the secrets of this URI."""
        if not self.scheme:
            return text
        whole, query = self._split()
        user, _, password = whole.rpartition("@")[0].partition("://")[2].partition(":")
        shown = {self.text: str(self), self.uri: str(self), whole: self._masked(whole)}
        secrets = [*shown, query, password]
        if self.scheme not in _CONTAINER_BEFORE_AT:
            secrets.append(user)
        secrets += (value for pair in query.split("&") for value in pair.partition("=")[2:])
        for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
            if len(secret) > 3:  # a shorter one is part of many words
                text = text.replace(secret, shown.get(secret, _HIDDEN))
        return text

    def _split(self) -> tuple[str, str]:
        whole, _, query = self.text.partition("?")
        return whole, query


def _read_target(value: object) -> TelemetryTarget:
    if isinstance(value, TelemetryTarget):
        return value
    text = os.fspath(value)  # type: ignore[call-overload]  # refuses everything else
    if not isinstance(text, str):
        raise TypeError(value)
    target = TelemetryTarget(text.strip())
    if not target.text or _ONE_SLASH.match(target.text):
        raise ValueError(value)
    if target.topic is not None:
        check_topic_name(target.topic)
    return target


TELEMETRY_TARGET = Kind(
    "a path, a URI such as s3://bucket/folder, or topic:NAME", _read_target, "str | PathLike[str]"
)
