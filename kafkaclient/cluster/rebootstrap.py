"""When a client goes back to the bootstrap servers (``metadata.recovery.strategy=rebootstrap``).

There are two reasons:

- No known broker can be connected (KIP-899). A Metadata request then dials the bootstrap
  servers, after at most ``MAX_DIALED`` known brokers with a head start of
  ``HEAD_START_S`` each, and before brokers whose last attempt failed (``Router.metadata``).
- Known brokers can be connected, but have not answered for
  ``metadata.recovery.rebootstrap.trigger.ms``, or a broker requires it (KIP-1102). Then the next
  Metadata request goes to the bootstrap servers (:meth:`Rebootstrap.take_turn`).

Only Metadata requests go to bootstrap servers once brokers are known. identity.py decides whether
the client then moves to the cluster that answers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sized

    from kafkaclient.config import ClientConfig

_log = logging.getLogger(__name__)

HEAD_START_S = 0.5  # how long one broker is dialed before the next one, for a call to any broker
MAX_DIALED = 5  # how many known brokers are dialed before the bootstrap servers


def is_enabled(config: ClientConfig) -> bool:
    return config.metadata_recovery_strategy == "rebootstrap"


class Rebootstrap:
    """Decides whether a Metadata request goes to the bootstrap servers."""

    def __init__(self, config: ClientConfig) -> None:
        self.required: bool = False
        """Whether a response required it, and none was used since."""
        self._enabled = is_enabled(config)
        self._trigger_s = config.metadata_recovery_rebootstrap_trigger_ms / 1000
        self._failing_since = 0.0
        self._warned = False

    def require(self) -> None:
        """A broker has answered REBOOTSTRAP_REQUIRED."""
        self.required = self._enabled

    def take_turn(self, now: float, failures: int, known_brokers: Sized) -> bool:
        """Returns whether this request goes to the bootstrap servers, after ``failures`` failed
        requests in a row. Unless it is required, every second request goes to a known broker,
        because known brokers may come back, too. Without known brokers the router asks the
        bootstrap servers anyway.
        """
        if not failures:
            self._failing_since = now  # the requests fail from now on, if this one does
            self._warned = False
        if self.required:
            return True
        silent_s = now - self._failing_since
        turn = failures % 2 == 1 and len(known_brokers) > 0
        if not (self._enabled and turn and silent_s >= self._trigger_s):
            return False
        level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
        _log.log(
            level, "no broker has answered for %.0f s: asking the bootstrap servers again", silent_s
        )
        return True
