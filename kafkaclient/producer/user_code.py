"""The guard around code of the application."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import safe_repr
from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)

T = TypeVar("T")


def text_of_user_error(error: BaseException) -> str:
    """The text of an exception that application code raised, for an error that replaces it. A
    KeyboardInterrupt or SystemExit is raised again from the event loop.

    Call it in ``except BaseException``, where no record may be lost half way.
    """
    loop = asyncio._get_running_loop()
    if isinstance(error, (KeyboardInterrupt, SystemExit)) and loop is not None:
        loop.call_soon(_raise, error)
    return safe_repr(error)


def _raise(error: BaseException) -> None:
    raise error


def call_hooks(hooks: Sequence[Callable[[T], object]], seen: T) -> None:
    """Call the methods of hooks; what they raise is logged."""
    for hook in hooks:
        try:
            hook(seen)
        except BaseException as error:  # noqa: BLE001 - it is raised in the middle of other work
            where = (getattr(seen, name, None) for name in ("topic", "partition", "broker"))
            topic, partition, broker = where
            _log.exception(
                "the hook %r failed on %r: %s",
                hook,
                seen,
                text_of_user_error(error),
                extra=log_fields(topic=topic, partition=partition, broker=broker),
            )
