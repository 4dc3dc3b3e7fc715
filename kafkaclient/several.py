"""Arguments that are several names or partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def several(values: Iterable[T], what: str) -> tuple[T, ...]:
    """The values in order, each once. Raises TypeError for a single value that is iterable itself:
    a str would otherwise be taken for the names of one character that it consists of."""
    if isinstance(values, (str, bytes, TopicPartition)):
        raise TypeError(
            f"{what} must be several, not {values!r}: for a single one give [{values!r}]; nothing "
            "was sent"
        )
    return tuple(dict.fromkeys(values))
