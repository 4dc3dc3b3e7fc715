"""The options of :class:`kafkaclient.reader.Reader` and of the admin client.

Names, defaults and checks are as in Java's ``ConsumerConfig`` of Kafka 4.4. There are no options
of groups and commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.config.client import ClientConfig, settle_client
from kafkaclient.config.kinds import BOOLEAN, INT64_MAX, TEXT, integer, one_of
from kafkaclient.config.options import Section
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.config.options import Given


# --- The options of ``Reader`` --------------------------------------------------------------------

_FETCHING = Section("Fetching")
_LARGEST_FETCH = 64 * 1024 * 1024
"""A response of this size with one more batch must be within the limit of a connection."""


class ReaderConfig(ClientConfig):
    """Checked options. :meth:`build` makes them, and adjusts options that affect each other."""

    fetch_min_bytes: int = _FETCHING.option(1, integer(0))
    """A broker answers when it has this many bytes, or after fetch_max_wait_ms."""
    fetch_max_wait_ms: int = _FETCHING.option(500, integer(0))
    """How long a broker may wait for fetch_min_bytes, in milliseconds."""
    fetch_max_bytes: int = _FETCHING.option(52_428_800, integer(1, _LARGEST_FETCH))
    """How many bytes of a read may be fetched and not yet taken by the caller, over all brokers.
    The brokers share this amount. A broker's response exceeds its share by at most one batch
    (KIP-74)."""
    max_partition_fetch_bytes: int = _FETCHING.option(1_048_576, integer(1))
    """How many bytes of a partition are fetched at a time, and the approximate number of bytes
    decoded into one batch of columns. A larger batch of records is fetched completely (KIP-74)."""
    isolation_level: str = _FETCHING.option(
        "read_uncommitted", one_of("read_uncommitted", "read_committed")
    )
    """read_committed leaves out records of aborted transactions, and ends where the oldest open
    transaction begins (KIP-98)."""
    check_crcs: bool = _FETCHING.option(True, BOOLEAN)
    """Whether the checksums of batches are checked."""
    client_rack: str = _FETCHING.option("", TEXT)
    """The rack of this client. Brokers with a rack-aware replica.selector.class direct the client
    to a follower in this rack (KIP-392)."""
    receive_buffer_bytes: int = _FETCHING.option(-1, integer(-1))
    """The size of the socket's receive buffer in bytes (SO_RCVBUF). With -1 the operating system
    decides and enlarges the buffer as needed (Java: 65536)."""
    allow_auto_create_topics: bool = _FETCHING.option(False, BOOLEAN)
    """Whether brokers may create a topic that does not exist (Java: true). The brokers' own
    auto.create.topics.enable must allow it, too."""
    max_block_ms: int = _FETCHING.option(
        60_000, integer(0, INT64_MAX), aliases=("default.api.timeout.ms",)
    )
    """How long start and offsets may take, and how long a partition may fail to be fetched before
    the read fails, in milliseconds."""

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @staticmethod
    def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
        """As for every client; also, a broker must answer before the request times out."""
        if values["fetch_max_wait_ms"] >= values["request_timeout_ms"]:
            entry = given.get("fetch_max_wait_ms") or given["request_timeout_ms"]
            raise ConfigError(
                f"{entry} is not accepted: fetch_max_wait_ms must be below request_timeout_ms"
            )
        settle_client(values, given)


# --- The options of ``Admin`` ---------------------------------------------------------------------

_ADMIN = Section("Admin")
_SHARED = frozenset({"Connections", "Metadata", "Encryption", "Authentication"})


class AdminConfig(ProducerConfig):
    """The producer's options, and one more.

    The sections Connections, Encryption and Authentication have an effect, and
    ``retry.backoff.ms`` and ``retry.backoff.max.ms``. Other options of the producer are accepted
    without effect, so that both can use the same properties file, as with Kafka's own tools.
    """

    default_api_timeout_ms: int = _ADMIN.option(60_000, integer(0))
    """How long a call of the admin client may take, retries included, in milliseconds, if the call
    gives no time limit."""

    def for_producer(self) -> dict[str, object]:
        """The options with which a producer connects to the same brokers in the same way."""
        return {
            name: value
            for name, declared in ProducerConfig.OPTIONS.items()
            if declared.section in _SHARED and (value := getattr(self, name)) != declared.default
        }
