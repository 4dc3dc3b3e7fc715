"""Options: names, values, conflicts, and defaults held against those of the Java producer."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.config.producer import ProducerConfig
from kafkaclient.errors import ConfigError, KafkaError

BOOTSTRAP = "localhost:9092"

# What ProducerConfig.configDef() of kafka-clients 4.4.0 says.
JAVA_DEFAULTS: dict[str, Any] = {
    "acks": "all",
    "batch.size": 16384,
    "bootstrap.resolve.timeout.ms": 0,
    "buffer.memory": 33554432,
    "client.dns.lookup": "use_all_dns_ips",
    "client.id": "",
    "client.rack": "",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "none",
    "compression.zstd.level": 3,
    "config.providers": [],
    "connections.max.idle.ms": 540000,
    "delivery.timeout.ms": 120000,
    "enable.idempotence": True,
    "enable.metrics.push": True,
    "interceptor.classes": [],
    "linger.ms": 5,
    "max.block.ms": 60000,
    "max.in.flight.requests.per.connection": 5,
    "max.request.size": 1048576,
    "metadata.cluster.check.enable": True,
    "metadata.max.age.ms": 300000,
    "metadata.max.idle.ms": 300000,
    "metadata.recovery.rebootstrap.trigger.ms": 300000,
    "metadata.recovery.strategy": "rebootstrap",
    "metric.reporters": ["org.apache.kafka.common.metrics.JmxReporter"],
    "metrics.num.samples": 2,
    "metrics.recording.level": "INFO",
    "metrics.sample.window.ms": 30000,
    "partitioner.adaptive.partitioning.enable": True,
    "partitioner.availability.timeout.ms": 0,
    "partitioner.class": None,
    "partitioner.ignore.keys": False,
    "partitioner.rack.aware": False,
    "receive.buffer.bytes": 32768,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30000,
    "retries": 2147483647,
    "retry.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "sasl.client.callback.handler.class": None,
    "sasl.jaas.config": None,
    "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": 60000,
    "sasl.kerberos.service.name": None,
    "sasl.kerberos.ticket.renew.jitter": 0.05,
    "sasl.kerberos.ticket.renew.window.factor": 0.8,
    "sasl.login.callback.handler.class": None,
    "sasl.login.class": None,
    "sasl.login.connect.timeout.ms": None,
    "sasl.login.read.timeout.ms": None,
    "sasl.login.refresh.buffer.seconds": 300,
    "sasl.login.refresh.min.period.seconds": 60,
    "sasl.login.refresh.window.factor": 0.8,
    "sasl.login.refresh.window.jitter": 0.05,
    "sasl.login.retry.backoff.max.ms": 10000,
    "sasl.login.retry.backoff.ms": 100,
    "sasl.mechanism": "GSSAPI",
    "sasl.oauthbearer.allow.unverified.audience": False,
    "sasl.oauthbearer.allow.unverified.issuer": False,
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.claim.aud": None,
    "sasl.oauthbearer.assertion.claim.exp.seconds": 300,
    "sasl.oauthbearer.assertion.claim.iss": None,
    "sasl.oauthbearer.assertion.claim.jti.include": False,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": 60,
    "sasl.oauthbearer.assertion.claim.sub": None,
    "sasl.oauthbearer.assertion.file": None,
    "sasl.oauthbearer.assertion.private.key.file": None,
    "sasl.oauthbearer.assertion.private.key.passphrase": None,
    "sasl.oauthbearer.assertion.template.file": None,
    "sasl.oauthbearer.client.credentials.client.id": None,
    "sasl.oauthbearer.client.credentials.client.secret": None,
    "sasl.oauthbearer.clock.skew.seconds": 30,
    "sasl.oauthbearer.expected.audience": "",
    "sasl.oauthbearer.expected.issuer": None,
    "sasl.oauthbearer.header.urlencode": False,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": 3600000,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 10000,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 100,
    "sasl.oauthbearer.jwks.endpoint.url": None,
    "sasl.oauthbearer.jwt.retriever.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    ),
    "sasl.oauthbearer.scope": None,
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "sasl.oauthbearer.token.endpoint.url": None,
    "security.protocol": "PLAINTEXT",
    "security.providers": None,
    "ssl.cipher.suites": "",
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.engine.factory.class": None,
    "ssl.key.password": None,
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.keystore.certificate.chain": None,
    "ssl.keystore.key": None,
    "ssl.keystore.location": None,
    "ssl.keystore.password": None,
    "ssl.keystore.type": "JKS",
    "ssl.protocol": "TLSv1.3",
    "ssl.provider": None,
    "ssl.secure.random.implementation": None,
    "ssl.trustmanager.algorithm": "PKIX",
    "ssl.truststore.certificates": None,
    "ssl.truststore.location": None,
    "ssl.truststore.password": None,
    "ssl.truststore.type": "JKS",
    "send.buffer.bytes": -1,
    "socket.connection.setup.timeout.max.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
    "transaction.timeout.ms": 60000,
    "transaction.two.phase.commit.enable": False,
    "transactional.id": None,
}

# Java key -> (our default, why it differs)
DELIBERATE_DIFFERENCES: dict[str, tuple[Any, str]] = {
    "client.id": ("kafkaclient", "Java numbers its producers, which takes a process-wide counter"),
    "compression.gzip.level": (None, "the codec's own default, as Java's -1"),
    "compression.lz4.level": (None, "the codec's own default (KIP-390)"),
    "compression.zstd.level": (None, "the codec's own default (KIP-390)"),
    "sasl.kerberos.service.name": ("kafka", "as in librdkafka and aiokafka"),
    "sasl.mechanism": (None, "who means Kerberos says so, so that one must be given"),
    "ssl.keystore.type": ("PEM", "the file itself says which it is"),
    "ssl.truststore.type": ("PEM", "the file itself says which it is"),
}

# Options without a counterpart among the keys above.
REQUIRED_OR_OBJECTS = {
    "bootstrap.servers",
    "key.serializer",
    "value.serializer",
    "on.delivery",
    "on.error",
}
NOT_IN_JAVA = {
    "bootstrap.connect.timeout.ms": "Java's producer does not connect before it is used",
    "partitioner": "a name instead of the class of partitioner.class",
    "partitioner.share.floor": "late binding is not in Java",
    "compression.threads": "Java compresses in the thread that calls send",
    "hooks": "objects instead of the classes of interceptor.classes and metric.reporters",
    "telemetry": "per-batch facts in files; Java has none",
    "telemetry.file.bytes": "as telemetry",
    "telemetry.file.ms": "as telemetry",
    "telemetry.retention.ms": "as telemetry",
    "telemetry.sample": "as telemetry",
    "allow.auto.create.topics": "a consumer key in Java; its producer always allows it",
    "sasl.oauthbearer.extensions": "Java has them in sasl.jaas.config",
    "ssl.endpoint.hostname": "Java verifies the name that it connects to",
    "sasl.oauth.token.provider": "an object instead of Java's callback handler classes",
    "sasl.kerberos.domain.name": "as in aiokafka",
    "sasl.kerberos.keytab": "as sasl.password",
    "sasl.kerberos.principal": "as sasl.password",
    "sasl.kerberos.ticket.cache": "an option of Krb5LoginModule in Java",
    "sasl.password": "a plain option for what Java has in sasl.jaas.config, as in librdkafka",
    "sasl.tokenauth": "an option of ScramLoginModule in Java",
    "sasl.username": "as sasl.password",
    "ssl.context": "an object, as in aiokafka",
    "https.ca.location": "an option of the login module in Java; the name is librdkafka's",
    "https.ca.pem": "an option of the login module in Java; the name is librdkafka's",
    "ssl.key.location": "the key in a file of its own, as in librdkafka",
}

# Defaults of Java that ask for something this client does not do.
REFUSED_DEFAULTS = {"metric.reporters"}


def build(*, mapping: dict[str, Any] | None = None, **options: Any) -> ProducerConfig:
    return ProducerConfig.build({"bootstrap.servers": BOOTSTRAP, **(mapping or {})}, options)


def by_java_name() -> dict[str, Any]:
    names = {}
    for option in ProducerConfig.OPTIONS.values():
        for name in (option.kafka_name, *option.aliases):
            names[name] = option
    return names


# --- defaults ----------------------------------------------------------------------------------


def test_defaults_are_javas_but_for_the_listed_differences() -> None:
    config, ours = build(), by_java_name()
    compared = {}
    for key, java in JAVA_DEFAULTS.items():
        if key in ours:
            value = getattr(config, ours[key].name)
            if value != (-1 if key == "acks" else java):
                compared[key] = value
    assert compared == {key: value for key, (value, _) in DELIBERATE_DIFFERENCES.items()}


def test_every_option_is_javas_or_listed() -> None:
    unlisted = {
        option.kafka_name
        for option in ProducerConfig.OPTIONS.values()
        if not {option.kafka_name, *option.aliases} & JAVA_DEFAULTS.keys()
    }
    assert unlisted == REQUIRED_OR_OBJECTS | NOT_IN_JAVA.keys()


def test_every_java_default_is_taken_or_refused_by_name() -> None:
    """A complete Java property file with nothing special in it is not an unknown language."""
    for key, value in JAVA_DEFAULTS.items():
        if key in REFUSED_DEFAULTS:
            with pytest.raises(ConfigError, match="not supported by kafkaclient"):
                build(mapping={key: value})
        elif value is not None or key not in by_java_name():  # None: not in the file
            build(mapping={key: value})


def test_defaults_pass_their_own_checks() -> None:
    for option in ProducerConfig.OPTIONS.values():
        if option.name != "bootstrap_servers":
            assert option.kind.read(option.default) == option.default


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mapping",
    [
        {"availability.timeout.ms": 7},
        {"availability_timeout_ms": 7},
        {"partitioner.availability.timeout.ms": 7},
        {"partitioner_availability_timeout_ms": "7"},
    ],
)
def test_every_spelling_in_mapping_and_keywords(mapping: dict[str, Any]) -> None:
    assert build(mapping=mapping).availability_timeout_ms == 7
    assert build(**mapping).availability_timeout_ms == 7


def test_the_three_partitioner_keys() -> None:
    issue = {
        "partitioner.ignore.keys": True,
        "adaptive.partitioning.enable": False,
        "availability.timeout.ms": 5,
    }
    java = {
        "partitioner.ignore.keys": "true",
        "partitioner.adaptive.partitioning.enable": "FALSE",
        "partitioner.availability.timeout.ms": " 5 ",
    }
    assert build(mapping=issue) == build(mapping=java)


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ("linger.mss", "linger.ms"),
        ("linger_mss", "linger_ms"),
        ("retires", "retries"),
        ("ack", "acks"),
        ("lingerMs", "linger_ms"),
        ("max_batch_size", "batch_size"),
        ("Batch.Size", "batch.size"),
        ("compresion_type", "compression_type"),
        ("partitioner.adaptive.partitioning.enabled", "partitioner.adaptive.partitioning.enable"),
        ("bootstrap_server", "bootstrap_servers"),
    ],
)
def test_unknown_option_names_the_closest(given: str, suggested: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(mapping={given: "hunter2"})
    assert str(caught.value) == f"unknown option {given}: did you mean {suggested}?"


def test_unknown_option_without_a_close_one() -> None:
    with pytest.raises(ConfigError, match="unknown option zzz: none of") as caught:
        build(zzz="hunter2")
    assert "hunter2" not in str(caught.value)


def test_names_must_be_strings() -> None:
    with pytest.raises(ConfigError, match="option names are strings, not 5"):
        ProducerConfig.build({5: 5})  # type: ignore[dict-item]


def test_config_error_is_a_kafka_error_and_a_value_error() -> None:
    assert issubclass(ConfigError, KafkaError)
    assert issubclass(ConfigError, ValueError)


def test_given_twice() -> None:
    same = build(mapping={"linger.ms": "10"}, linger_ms=10)
    assert same.linger_ms == 10
    with pytest.raises(ConfigError) as caught:
        build(mapping={"linger.ms": "10"}, linger_ms=20)
    assert str(caught.value) == (
        "linger.ms=10 and linger_ms=20 name the same option with different values; give one"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transaction.two.phase.commit.enable", True),
        ("sasl.kerberos.kinit.cmd", "hunter2"),
        ("sasl.oauthbearer.assertion.private.key.passphrase", "hunter2"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
        ("ssl_keymanager_algorithm", "hunter2"),
        ("interceptor.classes", ["a.B"]),
        ("partitioner.class", "a.B"),
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
    ],
)
def test_javas_keys_that_are_missing_here(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        build(mapping={key: value})
    assert str(caught.value).startswith(f"{key} is not supported by kafkaclient: ")
    assert "did you mean" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transaction.two.phase.commit.enable", "false"),
        ("interceptor.classes", ""),
        ("security_protocol", "plaintext"),
    ],
)
def test_missing_keys_pass_when_they_ask_for_nothing(key: str, value: object) -> None:
    assert build(mapping={key: value}) == build()


# --- repr --------------------------------------------------------------------------------------


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(build()) == "ProducerConfig(bootstrap_servers=(('localhost', 9092),))"
    config = build(linger_ms=10, acks="all", value_serializer=str.encode, batch_size=16384)
    assert repr(config) == (
        "ProducerConfig(bootstrap_servers=(('localhost', 9092),), linger_ms=10, "
        "value_serializer=str.encode)"
    )


def test_config_is_immutable() -> None:
    with pytest.raises(AttributeError):
        build().linger_ms = 7  # type: ignore[misc]


@pytest.mark.parametrize("name", ["on_delivery", "on_error"])
def test_a_coroutine_function_is_no_hook(name: str) -> None:
    async def hook(_: object) -> None: ...

    with pytest.raises(ConfigError, match=name):
        ProducerConfig.build({"bootstrap.servers": "b:9092"}, {name: hook})
