"""The names of the clients that experiments compare, and the options that all of them get."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FRANZ", "JAVA", "OURS", "client_config"]

OURS, JAVA, FRANZ = "kafkaclient", "java", "franz-go"


def client_config(bootstrap: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """A client's configuration; ``options`` have Kafka's dotted names."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "kafkaclient-experiment",
        **(options or {}),
    }
