"""The names that a topic can have, and arguments that name topics or partitions."""

from __future__ import annotations

import re
from contextlib import suppress
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, TypeVar, cast

from kafkaclient.errors import InvalidTopicError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable


# --- The names that a topic can have --------------------------------------------------------------

_MAX_LENGTH = 249
_LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{_MAX_LENGTH}}}")


def check_topic_name(name: object) -> None:
    """Raises :class:`InvalidTopicError` for an invalid topic name.

    Legal are 1 to 249 ASCII letters, digits, ``.``, ``_`` and ``-``, but not ``.`` and ``..``
    (Java: ``org.apache.kafka.common.internals.Topic.validate``).
    """
    if isinstance(name, str) and _LEGAL.fullmatch(name) and name not in (".", ".."):
        return
    if not isinstance(name, str) or not name:
        raise InvalidTopicError(f"a topic's name is a non-empty str, not {name!r}")
    if len(name) > _MAX_LENGTH:
        shown = f"{name[:40]!r}..."
        why = f"it has {len(name)} characters, and at most {_MAX_LENGTH} are allowed"
    else:
        shown, why = repr(name), "legal are ASCII letters, digits, '.', '_' and '-'"
        if name in (".", ".."):
            why = "'.' and '..' are not allowed"
    raise InvalidTopicError(f"no topic can be named {shown}: {why}; nothing was sent")


# --- Arguments that are several names or partitions -----------------------------------------------

T = TypeVar("T")


def several(values: Iterable[T], what: str) -> tuple[T, ...]:
    """The values in order, each once. Raises TypeError for a single value that is iterable itself:
    a str would otherwise be taken for the names of one character that it consists of."""
    if isinstance(values, (str, bytes, TopicPartition)):
        raise TypeError(
            f"{what} must be several, not {values!r}: for a single one give [{values!r}]"
        )
    return tuple(dict.fromkeys(values))


def partition_of(pair: object) -> TopicPartition:
    """The partition that a caller names by a pair, which may be another client's TopicPartition.
    Raises TypeError for what is no such pair."""
    with suppress(TypeError, ValueError):
        topic, partition = cast("tuple[object, SupportsIndex]", pair)
        if isinstance(topic, str) and not isinstance(partition, bool):
            return TopicPartition(topic, index(partition))
    raise TypeError(f"a partition is a pair of topic and number, as ('orders', 0), not {pair!r}")


def several_partitions(pairs: Iterable[object]) -> tuple[TopicPartition, ...]:
    """The partitions in order, each once. Raises TypeError for what are no pairs."""
    if isinstance(pairs, str):
        raise TypeError(
            f"partitions must be several, not {pairs!r}: for a single one give [({pairs!r}, 0)]"
        )
    return tuple(dict.fromkeys(map(partition_of, several(pairs, "partitions"))))
