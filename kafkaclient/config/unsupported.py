"""Keys of Java's producer that this client knows of and does not have.

A property file written for the Java producer gets a clear refusal instead of a guess at a
misspelling. A key whose value asks for nothing (empty, or what this client does anyway) passes.
Values are never shown: several of these keys hold secrets.
"""

from __future__ import annotations

from kafkaclient.errors import ConfigError

__all__ = ["refuse_unsupported"]

_TLS_SASL = "TLS and SASL are not available yet; only PLAINTEXT listeners can be used"
_TRANSACTIONS = "transactions are not available yet"
_PYTHON_CLASSES = "Java classes cannot be loaded"

# key -> (why not, the values that ask for nothing)
_KEYS: dict[str, tuple[str, frozenset[str]]] = {
    "client.dns.lookup": (
        "every address of a name is tried, as with use_all_dns_ips",
        frozenset({"use_all_dns_ips"}),
    ),
    "config.providers": (_PYTHON_CLASSES, frozenset()),
    "enable.metrics.push": (
        "metrics are not pushed to brokers (KIP-714); read Producer.metrics()",
        frozenset({"false"}),
    ),
    "interceptor.classes": (f"{_PYTHON_CLASSES}; see on_delivery", frozenset()),
    "metadata.recovery.rebootstrap.trigger.ms": (
        "the time until bootstrap servers are asked again is not adjustable",
        frozenset({"300000"}),
    ),
    "metadata.recovery.strategy": (
        "bootstrap servers are asked again when no known broker is reachable",
        frozenset({"rebootstrap"}),
    ),
    "metric.reporters": (f"{_PYTHON_CLASSES}; read Producer.metrics()", frozenset()),
    "metrics.recording.level": ("all metrics are recorded at one level", frozenset({"info"})),
    "partitioner.class": (
        f"{_PYTHON_CLASSES}; give partitioner=round-robin, uniform-sticky or sticky for Java's "
        "RoundRobinPartitioner, UniformStickyPartitioner and DefaultPartitioner, or an object",
        frozenset(),
    ),
    "security.protocol": (_TLS_SASL, frozenset({"plaintext"})),
    "security.providers": (_TLS_SASL, frozenset()),
    "transaction.timeout.ms": (_TRANSACTIONS, frozenset({"60000"})),
    "transaction.two.phase.commit.enable": (_TRANSACTIONS, frozenset({"false"})),
    "transactional.id": (_TRANSACTIONS, frozenset()),
}
_PREFIXES = ("sasl.", "ssl.")


def refuse_unsupported(spelling: str, value: object) -> bool:
    """Raise ConfigError for a key this client lacks; True when its value asks for nothing,
    False when Java's producer has no such key either."""
    key = spelling.replace("_", ".")
    if key.startswith(_PREFIXES):
        reason, harmless = _TLS_SASL, frozenset[str]()
    elif key in _KEYS:
        reason, harmless = _KEYS[key]
    else:
        return False
    if value is None or value in ("", [], ()) or str(value).strip().lower() in harmless:
        return True
    raise ConfigError(f"{spelling} is not supported by kafkaclient: {reason}")
