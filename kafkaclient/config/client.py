"""The options of every client: connections, metadata and time limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.config.kinds import (
    ADDRESSES,
    BOOLEAN,
    INT64_MAX,
    TEXT,
    Address,
    Limit,
    integer,
    one_of,
)
from kafkaclient.config.options import REQUIRED, Section, read_options
from kafkaclient.config.security import SecurityOptions
from kafkaclient.config.security_checks import settle_security
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.config.options import Given

_CONNECTIONS = Section("Connections")
_METADATA = Section("Metadata")
_TIME = Section("Delivery and retries")
_CONNECT_MS = 10_000

_LEAST_PAUSE_S = 0.1


class ClientConfig(SecurityOptions):
    """Checked options. :meth:`build` makes them, and adjusts options that affect each other."""

    bootstrap_servers: tuple[Address, ...] = _CONNECTIONS.option(REQUIRED, ADDRESSES)
    """The brokers to connect to first. The client learns the other brokers from them."""
    bootstrap_connect_timeout_ms: int = _CONNECTIONS.option(_CONNECT_MS, integer(0, INT64_MAX))
    """How long a start waits while all bootstrap servers refuse connections or their names cannot
    be resolved, in milliseconds. If the option is not given, at most max.block.ms. For servers that
    do not answer in time, a start waits for the longer of both times."""
    client_id: str = _CONNECTIONS.option("kafkaclient", TEXT)
    """The client's name in the brokers' logs, metrics and quotas."""
    request_timeout_ms: int = _CONNECTIONS.option(30_000, integer(1))
    """How long the client waits for a broker's response to one request, in milliseconds. Then it
    closes the connection and retries the request, if the time limit of the whole call allows it."""
    reconnect_backoff_ms: int = _CONNECTIONS.option(50, integer(0, INT64_MAX))
    """The pause before the client connects to a broker again after a failure, in milliseconds. It
    doubles with each consecutive failure, and varies randomly by up to 20 %."""
    reconnect_backoff_max_ms: int = _CONNECTIONS.option(1_000, integer(0, INT64_MAX))
    """The longest pause before the client connects to a broker again, in milliseconds."""
    socket_connection_setup_timeout_ms: int = _CONNECTIONS.option(10_000, integer(1, INT64_MAX))
    """How long a connection attempt may take, in milliseconds. It doubles with each consecutive
    failure, and varies randomly by up to 20 %."""
    socket_connection_setup_timeout_max_ms: int = _CONNECTIONS.option(30_000, integer(1, INT64_MAX))
    """The longest time for a connection attempt, in milliseconds."""
    connections_max_idle_ms: int = _CONNECTIONS.option(540_000, integer(1, INT64_MAX, also=(-1,)))
    """The client closes a connection that was unused for this many milliseconds; -1 closes none."""
    send_buffer_bytes: int = _CONNECTIONS.option(-1, integer(-1))
    """The size of the socket's send buffer in bytes (SO_SNDBUF). With -1 the operating system
    decides and enlarges the buffer as needed. Java's 131072 is less than an event loop can fill,
    and a broker can read, in a millisecond."""
    receive_buffer_bytes: int = _CONNECTIONS.option(32_768, integer(-1))
    """The size of the socket's receive buffer in bytes (SO_RCVBUF). With -1 the operating system
    decides."""

    metadata_max_age_ms: int = _METADATA.option(300_000, integer(0, INT64_MAX))
    """The client requests metadata again after this many milliseconds, even if nothing has
    failed."""
    metadata_max_idle_ms: int = _METADATA.option(300_000, integer(5_000, INT64_MAX))
    """The client leaves a topic out of metadata requests when the topic was not used for this many
    milliseconds (KIP-526)."""
    metadata_recovery_strategy: str = _METADATA.option("rebootstrap", one_of("rebootstrap", "none"))
    """What the client does when no known broker answers: 'rebootstrap' asks the bootstrap servers
    again, also when a broker asks for it (KIP-899, KIP-1102); 'none' continues with the known
    brokers."""
    metadata_recovery_rebootstrap_trigger_ms: int = _METADATA.option(300_000, integer(0))
    """The client asks the bootstrap servers again when it can connect to known brokers but they
    have not answered for this many milliseconds (KIP-1102). If it can connect to none of them, it
    asks the bootstrap servers at once."""
    allow_auto_create_topics: bool = _METADATA.option(True, BOOLEAN)
    """Whether brokers may create a topic that does not exist. The brokers' own
    auto.create.topics.enable must allow it, too."""

    max_block_ms: int = _TIME.option(60_000, integer(0, INT64_MAX))
    """How long a call may wait for the cluster, in milliseconds."""
    retry_backoff_ms: int = _TIME.option(100, integer(0, INT64_MAX))
    """The pause before a retry, in milliseconds. It doubles with each consecutive failure, and
    varies randomly by up to 20 % (KIP-580)."""
    retry_backoff_max_ms: int = _TIME.option(1_000, integer(0, INT64_MAX))
    """The longest pause before a retry, in milliseconds."""

    @classmethod
    def build(
        cls,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | Self | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Self:
        """The checked options, from a mapping (or the bootstrap servers alone) and keywords. What
        this method has returned can be given instead, without keywords.

        Both accept an option's Python name (``linger_ms``), its dotted name (``linger.ms``) and
        its aliases (``partitioner.availability.timeout.ms``). Text is read as in Java's property
        files.

        Raises ConfigError for an unknown or unsupported option, a value of the wrong type or out
        of range, an option given twice with different values, options in conflict, and missing
        bootstrap servers.
        """
        first = bootstrap_or_mapping
        if isinstance(first, cls) and not options:
            return first
        if first is not None and not isinstance(first, Mapping):
            first = {"bootstrap_servers": first}
        given = read_options(cls.OPTIONS, (first or {}, options or {}))
        if "bootstrap_servers" not in given:
            accepts = cls.OPTIONS["bootstrap_servers"].kind.accepts
            raise ConfigError(f"bootstrap_servers is required: give {accepts}")
        values = {name: declared.default for name, declared in cls.OPTIONS.items()}
        values.update({name: entry.value for name, entry in given.items()})
        cls.settle(values, given)
        return cls(**values)

    @property
    def block_limit(self) -> Limit:
        """How long a call that waits for metadata or buffer space may take."""
        return Limit(self.max_block_ms / 1000, "max.block.ms")

    @property
    def call_limit(self) -> Limit:
        """How long a call that sends a request may take, such as ``start``. ``max.block.ms=0``
        means that sending never waits; such a call could not succeed with it.
        """
        if self.max_block_ms:
            return self.block_limit
        return Limit(self.request_timeout_ms / 1000, "request.timeout.ms, as max.block.ms is 0")

    @property
    def connect_limit(self) -> Limit:
        """How long a start may wait for servers that all refuse connections."""
        return Limit(self.bootstrap_connect_timeout_ms / 1000, "bootstrap.connect.timeout.ms")

    @property
    def start_limit(self) -> Limit:
        """How long a start may take."""
        return max(self.call_limit, self.connect_limit, key=lambda limit: limit.seconds)

    @property
    def look_every_s(self) -> float:
        """How often a member looks for new topics and partitions: every ``metadata.max.age.ms``,
        with a pause also if that is 0."""
        return max(self.metadata_max_age_ms / 1000, _LEAST_PAUSE_S)

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        """Adjust the values of options that affect each other. Raises ConfigError."""
        settle_client(values, given)


def settle_client(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    """Adjust the options of every client that affect each other. Raises ConfigError.

    If the first value of a backoff is above its maximum, a given maximum limits the first value;
    otherwise the first value raises the maximum. Java does the same for retries. For reconnects,
    Java makes the pause constant if only the first value is given; a low one then overloads a dead
    broker with attempts.
    """
    for first, longest in (
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ):
        if values[first] > values[longest]:
            if longest in given:
                values[first] = values[longest]
            else:
                values[longest] = values[first]
    if "bootstrap_connect_timeout_ms" not in given:
        longest = values["max_block_ms"] or values["request_timeout_ms"]
        values["bootstrap_connect_timeout_ms"] = min(_CONNECT_MS, longest)
    settle_security(values, given)
