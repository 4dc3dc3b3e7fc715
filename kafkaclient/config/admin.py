"""The options of :class:`kafkaclient.admin.Admin`."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaclient.config.kinds import integer
from kafkaclient.config.options import Section, options_of
from kafkaclient.config.producer import ProducerConfig

_ADMIN = Section("Admin")
_SHARED = frozenset({"Connections", "Metadata", "Encryption", "Authentication"})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
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


AdminConfig.OPTIONS = options_of(AdminConfig)
