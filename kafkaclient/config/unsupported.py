"""Options of Java's clients and of librdkafka that this client does not have.

The refusal of such an option says why it is not supported. A value without effect passes: an
empty one, or one that describes what this client does anyway. Messages never show values, because
some of them are secrets.
"""

from __future__ import annotations

from kafkaclient.errors import ConfigError

_JAVA_STORE = (
    "certificates and keys are read from PEM files, which have no password of their own; the "
    "private key's is ssl.key.password"
)
_CONTEXT = "give an ssl.SSLContext as ssl_context to decide such details"
_KERBEROS = "GSSAPI (Kerberos) is not available"
_OAUTH = (
    "give sasl_oauth_token_provider for ways to a token other than OIDC client credentials, and "
    "sasl.mechanism=AWS_MSK_IAM for Amazon MSK"
)
_OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.{}oauthbearerlogincallbackhandler"
_REFRESH = "a token is requested again after 80 % of its life"
_LOGIN_PACE = "attempts follow reconnect.backoff.ms and socket.connection.setup.timeout.ms"
_NO_GROUPS = "there are no consumer groups, and nothing is committed; see kafkaclient.reader.Reader"
_PYTHON_CLASSES = "Java classes cannot be loaded"

# key -> (why it is not supported, the values without effect)
_KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "auto.commit.interval.ms": (_NO_GROUPS, ("5000",)),
    "auto.offset.reset": (
        "an offset that is not in the log is an error; ask Reader.offsets where to begin",
        ("none",),
    ),
    "client.dns.lookup": (
        "every address of a name is tried, as with use_all_dns_ips",
        ("use_all_dns_ips",),
    ),
    "config.providers": (_PYTHON_CLASSES, ()),
    "enable.auto.commit": (_NO_GROUPS, ("false",)),
    "enable.metrics.push": (
        "metrics are not pushed to brokers (KIP-714); read Producer.metrics()",
        ("false",),
    ),
    "group.id": (_NO_GROUPS, ()),
    "interceptor.classes": (f"{_PYTHON_CLASSES}; see on_delivery and hooks", ()),
    "metric.reporters": (f"{_PYTHON_CLASSES}; see hooks, and Producer.metrics()", ()),
    "metrics.recording.level": ("all metrics are recorded at one level", ("info",)),
    "partitioner.class": (
        f"{_PYTHON_CLASSES}; give partitioner=round-robin, uniform-sticky or sticky for Java's "
        "RoundRobinPartitioner, UniformStickyPartitioner and DefaultPartitioner, or an object",
        (),
    ),
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
    "ssl.keystore.password": (_JAVA_STORE, ()),
    "ssl.protocol": ("see ssl.enabled.protocols", ("tlsv1.3", "tlsv1.2", "tls")),
    "ssl.provider": (_PYTHON_CLASSES, ()),
    "ssl.secure.random.implementation": (_CONTEXT, ()),
    "ssl.trustmanager.algorithm": (_CONTEXT, ("pkix",)),
    "ssl.truststore.password": (_JAVA_STORE, ()),
    "transaction.two.phase.commit.enable": (
        "two-phase commit with a store of your own (KIP-939) is not available",
        ("false",),
    ),
    # The beginnings of further keys, the longest first.
    "sasl.kerberos.": (_KERBEROS, ("/usr/bin/kinit", "60000", "0.05", "0.8")),
    "sasl.oauthbearer.assertion.": (_OAUTH, ("rs256", "false", "300", "60")),
    "sasl.oauthbearer.": (
        _OAUTH,
        (
            *("30", "100", "10000", "3600000", "scope", "sub"),
            "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",
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
    "reconnect.backoff.jitter.ms"
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
