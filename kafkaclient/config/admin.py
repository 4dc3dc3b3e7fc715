"""The options of :class:`kafkaclient.admin.Admin`: those of the producer that are about reaching
brokers, and one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkaclient.config.kinds import at_least, integer
from kafkaclient.config.options import option, options_of
from kafkaclient.config.producer import ProducerConfig

__all__ = ["AdminConfig"]

_SHARED = frozenset({"Connections", "Metadata", "Encryption", "Authentication"})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AdminConfig(ProducerConfig):
    """Options as :class:`ProducerConfig` checks them.

    Of the producer's options the sections Connections, Encryption and Authentication count, and
    ``retry.backoff.ms`` and ``retry.backoff.max.ms``. Others are accepted and have no effect, so
    that a properties file can serve both, as with Kafka's own tools.
    """

    default_api_timeout_ms: int = option(
        60_000,
        integer(at_least(0)),
        "How long a call of the admin client may take, retries included, in milliseconds, if the "
        "call gives no time limit.",
        section="Admin",
    )

    def for_producer(self) -> dict[str, object]:
        """What a producer needs to reach the same brokers in the same way."""
        return {
            name: value
            for name, declared in ProducerConfig.OPTIONS.items()
            if declared.section in _SHARED and (value := getattr(self, name)) != declared.default
        }


AdminConfig.OPTIONS = options_of(AdminConfig)
