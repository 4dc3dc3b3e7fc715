"""How the producer's options bear on each other, as in Java's ``ProducerConfig`` post-processing.

Where two options conflict, what the user gave beats a default; two given ones are an error.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from kafkaclient.config.client import settle_client
from kafkaclient.config.kinds import INT32_MAX
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.config.options import Given

__all__ = ["MAX_IN_FLIGHT_IDEMPOTENT", "settle"]

_log = logging.getLogger(__name__)

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""How many batches per partition a broker remembers to recognize duplicates (KIP-98)."""


def settle(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    """Adjust the values of all options, of which the user gave some. Raises ConfigError."""
    # Java keeps linger.ms as a long and clips it to an int where it is used.
    values["linger_ms"] = min(values["linger_ms"], INT32_MAX)
    _settle_idempotence(values, given)
    _settle_delivery_timeout(values, given)
    _check_rack(values, given)
    settle_client(values, given)


def _settle_idempotence(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    if not values["enable_idempotence"]:
        if values["transactional_id"] is not None:
            raise ConfigError(
                f"{given['transactional_id']} is in conflict with {given['enable_idempotence']}: "
                "transactions need idempotence"
            )
        return
    in_flight = values["max_in_flight_requests_per_connection"]
    needs = []
    if values["acks"] != -1:
        needs.append(f"acks=all (given: {given['acks']})")
    if values["retries"] == 0:
        needs.append(f"retries above 0 (given: {given['retries']})")
    if in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        entry = given["max_in_flight_requests_per_connection"]
        needs.append(f"at most {MAX_IN_FLIGHT_IDEMPOTENT} requests in flight (given: {entry})")
    if not needs:
        return
    message = f"idempotence needs {' and '.join(needs)}"
    for name in ("enable_idempotence", "transactional_id"):
        if (explicit := given.get(name)) and values[name]:
            raise ConfigError(f"{explicit} is in conflict with another option: {message}")
    if len(needs) == 1 and in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        # Acks and retries say that duplicates are accepted; a number of requests does not.
        raise ConfigError(f"{message}; or turn it off with enable_idempotence=False")
    _log.warning("enable_idempotence is turned off: %s", message)
    values["enable_idempotence"] = False


def _settle_delivery_timeout(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    least = min(math.ceil(values["linger_ms"] + values["request_timeout_ms"]), INT32_MAX)
    if values["delivery_timeout_ms"] >= least:
        return
    needs = f"linger_ms + request_timeout_ms = {least}"
    if explicit := given.get("delivery_timeout_ms"):
        raise ConfigError(f"{explicit} is not accepted: give at least {needs}")
    _log.warning("delivery_timeout_ms is raised from its default to %s", needs)
    values["delivery_timeout_ms"] = least


def _check_rack(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    if values["partitioner_rack_aware"] and not values["client_rack"]:
        raise ConfigError(
            f"{given['partitioner_rack_aware']} needs client_rack: give the rack of this client"
        )
