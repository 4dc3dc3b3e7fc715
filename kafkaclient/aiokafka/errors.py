"""Errors that are of aiokafka's class and of kafkaclient's: either ``except`` catches them.

docs/reference/aiokafka.md has the table. The new error keeps the text, ``maybe_written`` and all
other attributes of kafkaclient's error, and its cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka import errors as theirs

from kafkaclient import errors as ours

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["BASES", "Translation", "aiokafka_error", "joined_error"]

_Bases: TypeAlias = tuple[type[BaseException], ...]

BASES: dict[type[ours.KafkaError], _Bases] = {
    ours.ProducerClosedError: (theirs.ProducerClosed,),
    ours.ProducerStateError: (theirs.IllegalOperation,),
    ours.ConsumerStateError: (theirs.IllegalStateError,),
    ours.NoOffsetError: (theirs.NoOffsetForPartitionError,),
    ours.UnreadableBatchError: (theirs.CorruptRecordException,),
    ours.RecordTooLargeError: (theirs.MessageSizeTooLargeError,),
    ours.PartitionOutOfRangeError: (AssertionError,),
    ours.MetadataTimeoutError: (theirs.UnknownTopicOrPartitionError,),
    ours.BufferFullError: (theirs.KafkaTimeoutError,),
    ours.RequestTimedOutError: (theirs.RequestTimedOutError, theirs.KafkaTimeoutError),
    ours.KafkaTimeoutError: (theirs.KafkaTimeoutError,),
    ours.BrokerConnectionError: (theirs.KafkaConnectionError,),
    ours.AuthenticationError: (theirs.KafkaConnectionError, theirs.AuthenticationFailedError),
    ours.UnsupportedVersionError: (theirs.UnsupportedVersionError,),
    ours.KafkaError: (theirs.KafkaError,),
}
"""Looked up by the error's class, the nearest base first, after the special cases of _bases_for."""


def aiokafka_error(error: ours.KafkaError) -> BaseException:
    """The error that a caller of aiokafka's API expects instead of ``error``.

    An exception of a partitioner is returned itself, as aiokafka raises it. An error that this
    function has returned is returned again.
    """
    if hasattr(error, "_bases"):
        return error
    cause = error.__cause__
    if isinstance(error, ours.PartitionerError) and cause is not None:
        return cause
    bases = _bases_for(error)
    if not bases:
        return error
    return _new_error(bases, type(error), error.args, error.__dict__, cause)


def joined_error(kinds: _Bases, error: ours.KafkaError) -> BaseException:
    """The error of kafkaclient as one of these classes of aiokafka, too."""
    kind = getattr(error, "_kind", type(error))
    return _new_error(kinds, kind, error.args, error.__dict__, error.__cause__)


class Translation:
    """``with Translation():`` raises :func:`aiokafka_error` for each error of kafkaclient."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        if isinstance(error, ours.KafkaError):
            translated = aiokafka_error(error)
            if translated is not error:
                raise translated from translated.__cause__


def _bases_for(error: ours.KafkaError) -> _Bases:
    """aiokafka's classes for an error. Empty: the error is returned as it is, because it already is
    the ValueError that aiokafka raises."""
    cause = error.__cause__
    if _is_fenced(error):
        return (theirs.ProducerFenced,)
    if isinstance(error, ours.BrokerError):
        return (theirs.for_code(error.code),)
    if isinstance(error, (ours.TransactionAbortableError, ours.TransactionAbortedError)):
        of_cause = _bases_for(cause) if isinstance(cause, ours.KafkaError) else ()
        return of_cause or (theirs.KafkaError,)
    if isinstance(error, ours.DeliveryTimeoutError) and isinstance(cause, ours.BrokerError):
        # aiokafka fails an expired batch with the broker's last error.
        return (theirs.for_code(cause.code), theirs.KafkaTimeoutError)
    if type(error) is ours.InvalidRecordError and isinstance(cause, (TypeError, ValueError)):
        return (TypeError,) if isinstance(cause, TypeError) else ()  # it is a ValueError
    return next(BASES[kind] for kind in type(error).__mro__ if kind in BASES)


def _is_fenced(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ours.ProducerFencedError):
            return True
        seen = seen.__cause__
    return False


_joint_classes: dict[tuple[_Bases, type[ours.KafkaError]], type[BaseException]] = {}


def _joint_class(bases: _Bases, kind: type[ours.KafkaError]) -> type[BaseException]:
    """A class with aiokafka's classes ``bases`` and kafkaclient's class ``kind``, made once. It has
    the name of the first base, because aiokafka's texts begin with the name."""
    known = _joint_classes.get((bases, kind))
    if known is not None:
        return known
    names = {
        "__doc__": f"{bases[0].__name__} of aiokafka, {kind.__name__} of kafkaclient.",
        "__module__": __name__,
        # kafkaclient's KafkaTimeoutError is an OSError: RuntimeError.__new__ refuses to make one.
        "__new__": kind.__new__,
        "__reduce__": _reduced,
        "_bases": bases,
        "_kind": kind,
    }
    joint = _joint_classes[bases, kind] = type(bases[0].__name__, (*bases, kind), names)
    return joint


def _new_error(
    bases: _Bases,
    kind: type[ours.KafkaError],
    arguments: tuple[Any, ...],
    state: dict[str, Any],
    cause: BaseException | None = None,
) -> BaseException:
    joint = _joint_class(bases, kind)
    error = joint.__new__(joint, *arguments)  # aiokafka's constructors have their own arguments
    error.args = arguments
    error.__dict__.update(state)
    error.__cause__ = cause
    return error


def _reduced(error: Any) -> tuple[Any, ...]:
    """For copy and pickle, which cannot find the class by its name."""
    return _new_error, (error._bases, error._kind, error.args, error.__dict__)
