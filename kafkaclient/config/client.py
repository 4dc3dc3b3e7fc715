"""The options that every client has: how brokers are reached, and what is known of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kafkaclient.config.kinds import (
    INT64_MAX,
    Address,
    addresses,
    at_least,
    boolean,
    integer,
    one_of,
    text,
)
from kafkaclient.config.limit import Limit
from kafkaclient.config.options import REQUIRED, Option, option, read_options
from kafkaclient.config.security import SecurityOptions, settle_security
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.config.options import Given

__all__ = ["ClientConfig", "settle_client"]

_CONNECTIONS = "Connections"
_METADATA = "Metadata"
_TIME = "Delivery and retries"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientConfig(SecurityOptions):
    """Checked options; made by :meth:`build`, which also settles how they bear on each other."""

    # --- connections --------------------------------------------------------------------------

    bootstrap_servers: tuple[Address, ...] = option(
        REQUIRED,
        addresses(),
        "The brokers to connect to first. The client learns the other brokers from them.",
        section=_CONNECTIONS,
    )
    client_id: str = option(
        "kafkaclient",
        text(),
        "The client's name in the brokers' logs, metrics and quotas.",
        section=_CONNECTIONS,
    )
    request_timeout_ms: int = option(
        30_000,
        integer(at_least(1)),
        "How long the client waits for a broker's response to one request, in milliseconds. Then "
        "it closes the connection and retries the request, if the time limit of the whole call "
        "allows it.",
        section=_CONNECTIONS,
    )
    reconnect_backoff_ms: int = option(
        50,
        integer(at_least(0, INT64_MAX)),
        "The pause before the client connects to a broker again after a failure, in milliseconds. "
        "It doubles with each consecutive failure, and varies randomly by up to 20 %.",
        section=_CONNECTIONS,
    )
    reconnect_backoff_max_ms: int = option(
        1_000,
        integer(at_least(0, INT64_MAX)),
        "The longest pause before the client connects to a broker again, in milliseconds.",
        section=_CONNECTIONS,
    )
    socket_connection_setup_timeout_ms: int = option(
        10_000,
        integer(at_least(1, INT64_MAX)),
        "How long a connection attempt may take, in milliseconds. It doubles with each "
        "consecutive failure, and varies randomly by up to 20 %.",
        section=_CONNECTIONS,
    )
    socket_connection_setup_timeout_max_ms: int = option(
        30_000,
        integer(at_least(1, INT64_MAX)),
        "The longest time for a connection attempt, in milliseconds.",
        section=_CONNECTIONS,
    )
    connections_max_idle_ms: int = option(
        540_000,
        integer(at_least(-1, INT64_MAX)),
        "The client closes a connection that was unused for this many milliseconds; -1 closes "
        "none.",
        section=_CONNECTIONS,
    )
    send_buffer_bytes: int = option(
        -1,
        integer(at_least(-1)),
        "The size of the socket's send buffer in bytes (SO_SNDBUF). With -1 the operating system "
        "decides and enlarges the buffer as needed. Java's 131072 is less than an event loop can "
        "fill, and a broker can read, in a millisecond.",
        section=_CONNECTIONS,
    )
    receive_buffer_bytes: int = option(
        32_768,
        integer(at_least(-1)),
        "The size of the socket's receive buffer in bytes (SO_RCVBUF). With -1 the operating "
        "system decides.",
        section=_CONNECTIONS,
    )

    # --- metadata -----------------------------------------------------------------------------

    metadata_max_age_ms: int = option(
        300_000,
        integer(at_least(0, INT64_MAX)),
        "The client requests metadata again after this many milliseconds, even if nothing has "
        "failed.",
        section=_METADATA,
    )
    metadata_max_idle_ms: int = option(
        300_000,
        integer(at_least(5_000, INT64_MAX)),
        "The client leaves a topic out of metadata requests when the topic was not used for this "
        "many milliseconds (KIP-526).",
        section=_METADATA,
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        one_of("rebootstrap", "none"),
        "What the client does when no known broker answers: 'rebootstrap' asks the bootstrap "
        "servers again, also when a broker asks for it (KIP-899, KIP-1102); 'none' continues with "
        "the known brokers.",
        section=_METADATA,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        300_000,
        integer(at_least(0)),
        "The client asks the bootstrap servers again when it can connect to known brokers but "
        "they have not answered for this many milliseconds (KIP-1102). If it can connect to none "
        "of them, it asks the bootstrap servers at once.",
        section=_METADATA,
    )
    allow_auto_create_topics: bool = option(
        True,
        boolean(),
        "Whether brokers may create a topic that does not exist. The brokers' own "
        "auto.create.topics.enable must allow it, too.",
        section=_METADATA,
    )

    # --- time ---------------------------------------------------------------------------------

    max_block_ms: int = option(
        60_000,
        integer(at_least(0, INT64_MAX)),
        "How long a call may wait for the cluster, in milliseconds.",
        section=_TIME,
    )
    retry_backoff_ms: int = option(
        100,
        integer(at_least(0, INT64_MAX)),
        "The pause before a retry, in milliseconds. It doubles with each consecutive failure, and "
        "varies randomly by up to 20 % (KIP-580).",
        section=_TIME,
    )
    retry_backoff_max_ms: int = option(
        1_000,
        integer(at_least(0, INT64_MAX)),
        "The longest pause before a retry, in milliseconds.",
        section=_TIME,
    )

    OPTIONS: ClassVar[Mapping[str, Option]]
    """Every option's declaration, by Python name."""

    @classmethod
    def build(
        cls,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Self:
        """Check and settle what the user gave: as a mapping, or the bootstrap servers alone, and
        by keyword.

        Both accept an option's Python name (``linger_ms``), its dotted name (``linger.ms``) and
        Java's full name where it is longer (``partitioner.availability.timeout.ms``). Text is
        parsed as in Java's property files.

        Raises ConfigError for an unknown option (naming the closest), one that this client does
        not support, a value of the wrong type or out of range, an option given twice with different
        values, options in conflict, and missing bootstrap servers.
        """
        first = bootstrap_or_mapping
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
        """How long a call that has to ask the cluster may take, such as ``start``: with
        ``max.block.ms=0``, which says that sending never waits, it could never be answered."""
        if self.max_block_ms:
            return self.block_limit
        return Limit(self.request_timeout_ms / 1000, "request.timeout.ms, as max.block.ms is 0")

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        """Adjust the values of all options, of which the user gave some. Raises ConfigError."""
        settle_client(values, given)

    def __repr__(self) -> str:
        """Shows the options that differ from their default."""
        shown = []
        for name, declared in self.OPTIONS.items():
            value = getattr(self, name)
            if value != declared.default:
                shown_value = getattr(value, "__qualname__", repr(value))
                shown.append(f"{name}={'[hidden]' if declared.secret else shown_value}")
        return f"{type(self).__name__}({', '.join(shown)})"


def settle_client(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    """How the options of every client bear on each other. Raises ConfigError."""
    _settle_backoffs(values, given)
    settle_security(values, given)


def _settle_backoffs(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    """A first pause above the longest: the one that was given wins, of two given the longest.

    Java does so for retries; for reconnects it makes the pause constant as soon as only the first
    one is given, which hammers a dead broker when somebody lowers it.
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
