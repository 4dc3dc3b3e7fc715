"""Options of Java's clients that this client does not have.

The refusal of such an option says why it is not supported. A value without effect passes: an
empty one, or one that describes what this client does anyway. Messages never show values, because
some of them are secrets.
"""

from __future__ import annotations

from kafkaclient.errors import ConfigError

__all__ = ["refuse_unsupported"]

_JAVA_STORE = (
    "certificates and keys are read from PEM files, which have no password of their own; the "
    "private key's is ssl.key.password"
)
_CONTEXT = "give an ssl.SSLContext as ssl_context to decide such details"
_KERBEROS = "GSSAPI (Kerberos) is not available"
_OAUTH = "give sasl_oauth_token_provider for ways to a token other than OIDC client credentials"
_REFRESH = "a token is requested again after 80 % of its life"
_LOGIN_PACE = "attempts follow reconnect.backoff.ms and socket.connection.setup.timeout.ms"
_NO_GROUPS = "there are no consumer groups, and nothing is committed; see docs/reader.md"
_PYTHON_CLASSES = "Java classes cannot be loaded"

# key -> (why it is not supported, the values without effect)
_KEYS: dict[str, tuple[str, frozenset[str]]] = {
    "auto.commit.interval.ms": (_NO_GROUPS, frozenset({"5000"})),
    "auto.offset.reset": (
        "an offset that is not in the log is an error; ask Reader.offsets where to begin",
        frozenset({"none"}),
    ),
    "client.dns.lookup": (
        "every address of a name is tried, as with use_all_dns_ips",
        frozenset({"use_all_dns_ips"}),
    ),
    "config.providers": (_PYTHON_CLASSES, frozenset()),
    "enable.auto.commit": (_NO_GROUPS, frozenset({"false"})),
    "enable.metrics.push": (
        "metrics are not pushed to brokers (KIP-714); read Producer.metrics()",
        frozenset({"false"}),
    ),
    "group.id": (_NO_GROUPS, frozenset()),
    "interceptor.classes": (f"{_PYTHON_CLASSES}; see on_delivery", frozenset()),
    "metric.reporters": (f"{_PYTHON_CLASSES}; read Producer.metrics()", frozenset()),
    "metrics.recording.level": ("all metrics are recorded at one level", frozenset({"info"})),
    "partitioner.class": (
        f"{_PYTHON_CLASSES}; give partitioner=round-robin, uniform-sticky or sticky for Java's "
        "RoundRobinPartitioner, UniformStickyPartitioner and DefaultPartitioner, or an object",
        frozenset(),
    ),
    "sasl.client.callback.handler.class": (_PYTHON_CLASSES, frozenset()),
    "sasl.login.callback.handler.class": (f"{_PYTHON_CLASSES}; {_OAUTH}", frozenset()),
    "sasl.login.class": (_PYTHON_CLASSES, frozenset()),
    "sasl.login.connect.timeout.ms": (_LOGIN_PACE, frozenset()),
    "sasl.login.read.timeout.ms": (_LOGIN_PACE, frozenset()),
    "sasl.login.refresh.buffer.seconds": (_REFRESH, frozenset({"300"})),
    "sasl.login.refresh.min.period.seconds": (_REFRESH, frozenset({"60"})),
    "sasl.login.refresh.window.factor": (_REFRESH, frozenset({"0.8"})),
    "sasl.login.refresh.window.jitter": (_REFRESH, frozenset({"0.05"})),
    "sasl.login.retry.backoff.max.ms": (_LOGIN_PACE, frozenset({"10000"})),
    "sasl.login.retry.backoff.ms": (_LOGIN_PACE, frozenset({"100"})),
    "sasl.oauthbearer.header.urlencode": (_OAUTH, frozenset({"false"})),
    "sasl.oauthbearer.method": (_OAUTH, frozenset({"oidc"})),
    "security.providers": (_PYTHON_CLASSES, frozenset()),
    "ssl.cipher.suites": (_CONTEXT, frozenset()),
    "ssl.engine.factory.class": (_PYTHON_CLASSES, frozenset()),
    "ssl.keymanager.algorithm": (_CONTEXT, frozenset({"sunx509", "pkix"})),
    "ssl.keystore.password": (_JAVA_STORE, frozenset()),
    "ssl.protocol": ("see ssl.enabled.protocols", frozenset({"tlsv1.3", "tlsv1.2", "tls"})),
    "ssl.provider": (_PYTHON_CLASSES, frozenset()),
    "ssl.secure.random.implementation": (_CONTEXT, frozenset()),
    "ssl.trustmanager.algorithm": (_CONTEXT, frozenset({"pkix"})),
    "ssl.truststore.password": (_JAVA_STORE, frozenset()),
    "transaction.two.phase.commit.enable": (
        "two-phase commit with a store of your own (KIP-939) is not available",
        frozenset({"false"}),
    ),
}

# The same for groups of keys, the longest prefix first.
_GROUPS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("sasl.kerberos.", _KERBEROS, frozenset({"/usr/bin/kinit", "60000", "0.05", "0.8"})),
    ("sasl.oauthbearer.assertion.", _OAUTH, frozenset({"rs256", "false", "300", "60"})),
    (
        "sasl.oauthbearer.",
        _OAUTH,
        frozenset(
            {
                "30",
                "100",
                "10000",
                "3600000",
                "scope",
                "sub",
                "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",
                "org.apache.kafka.common.security.oauthbearer.defaultjwtvalidator",
            }
        ),
    ),
)


def refuse_unsupported(spelling: str, value: object) -> bool:
    """Raise ConfigError for an option that only Java has. True if its value has no effect, False
    if Java has no such option either.
    """
    key = spelling.replace("_", ".")
    group = next((group for group in _GROUPS if key.startswith(group[0])), None)
    if key in _KEYS:
        reason, harmless = _KEYS[key]
    elif group is not None:
        _, reason, harmless = group
    else:
        return False
    if value is None or value in ("", [], ()) or str(value).strip().lower() in harmless:
        return True
    raise ConfigError(f"{spelling} is not supported by kafkaclient: {reason}")
