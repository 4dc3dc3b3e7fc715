"""Options: names, values, conflicts, and defaults held against those of the Java producer."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkaclient.config.kinds import INT32_MAX
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.errors import ConfigError, KafkaError

BOOTSTRAP = "localhost:9092"

# What ProducerConfig.configDef() of kafka-clients 4.3.1 says, and the two keys that 4.4.0 adds
# (KIP-1123).
JAVA_DEFAULTS: dict[str, Any] = {
    "acks": "all",
    "batch.size": 16384,
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
    "sasl.mechanism": (None, "GSSAPI is not available, so that one must be given"),
    "ssl.keystore.type": ("PEM", "Java's own formats are not read"),
    "ssl.truststore.type": ("PEM", "Java's own formats are not read"),
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
    "partitioner": "a name instead of the class of partitioner.class",
    "partitioner.share.floor": "late binding is not in Java",
    "telemetry": "per-batch facts in files; Java has none",
    "allow.auto.create.topics": "a consumer key in Java; its producer always allows it",
    "sasl.oauth.token.provider": "an object instead of Java's callback handler classes",
    "sasl.password": "a plain option for what Java has in sasl.jaas.config, as in librdkafka",
    "sasl.username": "as sasl.password",
    "ssl.context": "an object, as in aiokafka",
    "https.ca.location": "an option of the login module in Java; the name is librdkafka's",
    "https.ca.pem": "an option of the login module in Java; the name is librdkafka's",
    "ssl.key.location": "the key in a file of its own, as in librdkafka",
}

# Defaults of Java that ask for something this client does not do.
REFUSED_DEFAULTS = {"enable.metrics.push", "metric.reporters"}
REFUSED_VALUES = {"sasl.mechanism", "ssl.keystore.type", "ssl.truststore.type"}


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
        elif key in REFUSED_VALUES:
            with pytest.raises(ConfigError, match="is not accepted: give one of"):
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
        ("sasl.kerberos.service.name", "hunter2"),
        ("sasl.oauthbearer.assertion.private.key.passphrase", "hunter2"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
        ("ssl_keystore_password", "hunter2"),
        ("interceptor.classes", ["a.B"]),
        ("partitioner.class", "a.B"),
        ("enable.metrics.push", True),
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
        ("enable.metrics.push", False),
        ("enable.metrics.push", "false"),
    ],
)
def test_missing_keys_pass_when_they_ask_for_nothing(key: str, value: object) -> None:
    assert build(mapping={key: value}) == build()


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"acks": "all"}, "acks", -1),
        ({"acks": "-1"}, "acks", -1),
        ({"acks": " 1 ", "linger.ms": "0"}, "acks", 1),
        ({"acks": 0}, "acks", 0),
        ({"linger.ms": "0.5"}, "linger_ms", 0.5),
        ({"linger.ms": 2.5}, "linger_ms", 2.5),
        ({"linger.ms": "20"}, "linger_ms", 20),
        ({"batch.size": "0"}, "batch_size", 0),
        ({"enable.idempotence": "False"}, "enable_idempotence", False),
        ({"compression.type": "zstd"}, "compression_type", "zstd"),
        ({"compression.zstd.level": "-5"}, "compression_zstd_level", -5),
        ({"compression.gzip.level": -1}, "compression_gzip_level", -1),
        ({"compression.gzip.level": None}, "compression_gzip_level", None),
        ({"connections.max.idle.ms": -1}, "connections_max_idle_ms", -1),
        ({"max.block.ms": 2**40}, "max_block_ms", 2**40),
        ({"client.id": ""}, "client_id", ""),
        ({"client.rack": " eu-1a "}, "client_rack", "eu-1a"),
        ({"partitioner": " late "}, "partitioner", "late"),
        ({"partitioner": "uniform-sticky"}, "partitioner", "uniform-sticky"),
        ({"partitioner.share.floor": "0.25"}, "partitioner_share_floor", 0.25),
        ({"partitioner.share.floor": 1}, "partitioner_share_floor", 1),
    ],
)
def test_values_read(options: dict[str, Any], field: str, value: object) -> None:
    read = getattr(build(mapping=options), field)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("linger_ms", "soon", "a number of 0 or more"),
        ("linger_ms", -1, "a number of 0 or more"),
        ("linger_ms", float("nan"), "a number of 0 or more"),
        ("linger_ms", float("inf"), "a number of 0 or more"),
        ("linger_ms", "inf", "a number of 0 or more"),
        ("linger_ms", True, "a number of 0 or more"),
        ("linger_ms", None, "a number of 0 or more"),
        ("batch_size", 1.5, "a whole number of 0 or more"),
        ("batch_size", "1.5", "a whole number of 0 or more"),
        ("batch_size", False, "a whole number of 0 or more"),
        ("batch_size", -1, "a whole number of 0 or more"),
        ("batch_size", 2**31, "a whole number of 0 or more"),
        ("acks", True, "all (or -1), 1 or 0"),
        ("acks", 2, "all (or -1), 1 or 0"),
        ("acks", "most", "all (or -1), 1 or 0"),
        ("acks", 1.0, "all (or -1), 1 or 0"),
        ("enable_idempotence", 1, "true or false"),
        ("enable_idempotence", "yes", "true or false"),
        ("max_in_flight_requests_per_connection", 0, "a whole number of 1 or more"),
        ("metadata_max_idle_ms", 4999, "a whole number of 5000 or more"),
        ("availability_timeout_ms", -1, "a whole number of 0 or more"),
        ("compression_type", "brotli", "one of none, gzip, snappy, lz4, zstd"),
        ("compression_type", 1, "one of none, gzip, snappy, lz4, zstd"),
        ("compression_gzip_level", 0, "a whole number from 1 to 9 or -1, or None"),
        ("compression_lz4_level", 18, "a whole number from 1 to 17, or None"),
        ("client_id", 5, "a string"),
        ("partitioner_share_floor", 1.01, "a number from 0 to 1"),
        ("partitioner_share_floor", -0.1, "a number from 0 to 1"),
        ("value_serializer", "org.example.Json", "a function (value) -> bytes or None, or None"),
        ("on_delivery", 5, "a function (delivery), or None"),
    ],
)
def test_values_refused(name: str, value: object, accepted: str) -> None:
    for spelling in (name, name.replace("_", ".")):
        with pytest.raises(ConfigError) as caught:
            build(mapping={spelling: value})
        assert str(caught.value) == f"{spelling}={value!r} is not accepted: give {accepted}"


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        build(linger_ms="x" * 10_000)
    assert len(str(caught.value)) < 200


def test_numbers_that_are_not_ints_but_count_like_them() -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    assert build(batch_size=Index()).batch_size == 7


def test_linger_is_clipped_to_an_int() -> None:
    assert build(linger_ms=2**40).linger_ms == INT32_MAX


def test_functions_are_kept() -> None:
    def hook(*_: object) -> None: ...

    config = build(value_serializer=str.encode, on_error=hook)
    assert config.value_serializer is str.encode
    assert config.on_error is hook


# --- the partitioner ---------------------------------------------------------------------------


class Chooser:
    def partition(self, *_: object) -> int:
        return 0


class Waiter:
    async def partition(self, *_: object) -> int:
        return 0


class Word:
    partition = "0"


def test_a_partitioner_of_ones_own_is_kept() -> None:
    chooser = Chooser()
    assert build(partitioner=chooser).partitioner is chooser


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Chooser, "Chooser"),
        (Waiter(), None),
        (Word(), None),
        (5, "5"),
        (None, "None"),
        (lambda *_: 0, "<lambda>"),
        ("round_robin", "'round_robin'"),
    ],
)
def test_partitioners_refused(value: object, shown: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        build(partitioner=value)
    assert str(caught.value).endswith(
        " is not accepted: give one of late, kip794, sticky, uniform-sticky, round-robin, random, "
        "or an object with a method partition(topic, key, value, cluster, load) -> int"
    )
    assert shown is None or f"partitioner={shown} " in str(caught.value)


def test_javas_partitioner_class_is_told_the_names_to_give() -> None:
    java = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    with pytest.raises(ConfigError, match="give partitioner=round-robin, uniform-sticky or sticky"):
        build(mapping={"partitioner.class": java})


def test_rack_awareness_needs_a_rack() -> None:
    """As Java 4.4 (KIP-1123)."""
    aware = build(mapping={"partitioner.rack.aware": "true", "client.rack": "eu-1a"})
    assert aware.partitioner_rack_aware
    assert build(mapping={"client.rack": "eu-1a"}).partitioner_rack_aware is False
    for rack in ({}, {"client.rack": " "}):
        with pytest.raises(ConfigError) as caught:
            build(mapping={"partitioner.rack.aware": "true", **rack})
        assert str(caught.value) == (
            "partitioner.rack.aware=True needs client_rack: give the rack of this client"
        )


# --- bootstrap servers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("a:9092", (("a", 9092),)),
        (" a:9092 , b-1.example.org:9093,", (("a", 9092), ("b-1.example.org", 9093))),
        ("[::1]:9092,10.0.0.1:1", (("::1", 9092), ("10.0.0.1", 1))),
        ("[fe80::1%eth0]:9092", (("fe80::1%eth0", 9092),)),
        ("PLAINTEXT://a:9092", (("a", 9092),)),
        (["a:9092", "b:9092", "a:9092"], (("a", 9092), ("b", 9092))),
        ({"a:9092": 1}.keys(), (("a", 9092),)),
        ((("a", 9092), ["::1", 9093]), (("a", 9092), ("::1", 9093))),
    ],
)
def test_bootstrap_servers_read(given: object, read: object) -> None:
    assert ProducerConfig.build({"bootstrap.servers": given}).bootstrap_servers == read


@pytest.mark.parametrize(
    "given",
    [
        "",
        " , ",
        "localhost",
        "localhost:",
        ":9092",
        "localhost:0",
        "localhost:65536",
        "localhost:http",
        "::1:9092",
        "HTTP://a:9092",
        "a:9092;b:9092",
        [],
        [9092],
        [("a", "9092")],
        [("", 9092)],
        9092,
        None,
        {"a": 9092},
    ],
)
def test_bootstrap_servers_refused(given: object) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap_servers=.* is not accepted: give host:port"):
        ProducerConfig.build(None, {"bootstrap_servers": given})


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is required: give host:port"):
        ProducerConfig.build({}, {"linger_ms": 1})


# --- options in conflict -----------------------------------------------------------------------

IDEMPOTENCE_CONFLICTS = [
    ({"acks": 1}, "acks=all (given: acks=1)"),
    ({"acks": "0"}, "acks=all (given: acks=0)"),
    ({"retries": 0}, "retries above 0 (given: retries=0)"),
    (
        {"max.in.flight.requests.per.connection": 6},
        "at most 5 requests in flight (given: max.in.flight.requests.per.connection=6)",
    ),
]


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS[:3])
def test_conflict_turns_default_idempotence_off(
    conflict: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kafkaclient.config"):
        assert build(mapping=conflict).enable_idempotence is False
    assert words in caplog.text


def test_more_requests_in_flight_than_idempotence_bears() -> None:
    """Java warned and turned it off before 4.0. Acks=1 says itself that it is not wanted."""
    with pytest.raises(ConfigError, match=r"at most 5 requests.*enable_idempotence=False"):
        build(mapping={"max.in.flight.requests.per.connection": 6})
    for off in ({"acks": 1}, {"enable.idempotence": "false"}):
        options = {"max.in.flight.requests.per.connection": 6, **off}
        assert build(mapping=options).enable_idempotence is False


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS)
def test_conflict_with_idempotence_asked_for(conflict: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(mapping={"enable.idempotence": "true", **conflict})
    assert str(caught.value) == (
        f"enable.idempotence=True is in conflict with another option: idempotence needs {words}"
    )


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS)
def test_no_conflict_without_idempotence(
    conflict: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert build(mapping={"enable.idempotence": False, **conflict}).enable_idempotence is False
    assert words not in caplog.text


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS)
def test_conflict_with_transactions(conflict: dict[str, Any], words: str) -> None:
    """As in Java: a transactional id asks for idempotence, which is not turned off then."""
    with pytest.raises(ConfigError) as caught:
        build(mapping={"transactional.id": "tx", **conflict})
    assert str(caught.value) == (
        f"transactional.id='tx' is in conflict with another option: idempotence needs {words}"
    )


def test_transactions_without_idempotence() -> None:
    with pytest.raises(ConfigError) as caught:
        build(transactional_id="tx", enable_idempotence=False)
    assert str(caught.value) == (
        "transactional_id='tx' is in conflict with enable_idempotence=False: transactions need "
        "idempotence"
    )


def test_transactions() -> None:
    config = build(mapping={"transactional.id": " tx ", "transaction.timeout.ms": "1000"})
    assert (config.transactional_id, config.transaction_timeout_ms) == ("tx", 1000)
    assert (config.enable_idempotence, config.acks) == (True, -1)
    for empty in ("", " ", 5):
        with pytest.raises(ConfigError, match="not empty"):
            build(transactional_id=empty)


def test_delivery_timeout_given_too_low() -> None:
    with pytest.raises(ConfigError) as caught:
        build(delivery_timeout_ms=30_004)
    assert str(caught.value) == (
        "delivery_timeout_ms=30004 is not accepted: give at least "
        "linger_ms + request_timeout_ms = 30005"
    )
    assert build(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_delivery_timeout_by_default_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkaclient.config"):
        config = build(request_timeout_ms=200_000, linger_ms=0.5)
    assert config.delivery_timeout_ms == 200_001
    assert "delivery_timeout_ms is raised" in caplog.text
    assert build(linger_ms=2**40, request_timeout_ms=INT32_MAX).delivery_timeout_ms == INT32_MAX


@pytest.mark.parametrize(
    ("given", "first", "longest"),
    [
        ({}, 100, 1000),
        ({"retry.backoff.ms": 5000}, 5000, 5000),
        ({"retry.backoff.max.ms": 20}, 20, 20),
        ({"retry.backoff.ms": 5000, "retry.backoff.max.ms": 20}, 20, 20),
        ({"retry.backoff.ms": 10}, 10, 1000),
    ],
)
def test_first_pause_is_never_above_the_longest(
    given: dict[str, Any], first: int, longest: int
) -> None:
    config = build(mapping=given)
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (first, longest)


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


@pytest.mark.parametrize("name", ["on_delivery", "on_error", "key_serializer"])
def test_a_coroutine_function_is_no_hook(name: str) -> None:
    async def hook(_: object) -> None: ...

    with pytest.raises(ConfigError, match=name):
        ProducerConfig.build({"bootstrap.servers": "b:9092"}, {name: hook})
