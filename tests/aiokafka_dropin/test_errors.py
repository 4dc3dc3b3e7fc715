"""Errors are of aiokafka's class and of kafkaclient's. test_pages.py has the classes of each plain
error; the special cases are here."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from aiokafka import errors as theirs

from kafkaclient import errors as ours
from kafkaclient.aiokafka.errors import Translation, aiokafka_error
from kafkaclient.broker_errors import BROKER_ERRORS, broker_error


def caused(error: ours.KafkaError, cause: BaseException) -> ours.KafkaError:
    error.__cause__ = cause
    return error


FENCED = broker_error(90)

TABLE: list[tuple[ours.KafkaError, tuple[type[BaseException], ...]]] = [
    (ours.ProducerStateError("x"), (theirs.IllegalOperation,)),
    (ours.BufferFullError("x"), (theirs.KafkaTimeoutError,)),
    (caused(ours.InvalidRecordError("x"), TypeError("y")), (TypeError,)),
    (caused(ours.InvalidRecordError("x"), ValueError("y")), (ValueError,)),
    (ours.InvalidRecordError("x"), (theirs.KafkaError, ValueError)),
    (ours.PartitionerError("x"), (theirs.KafkaError,)),
    (ours.SaslAuthenticationError("x"), (theirs.AuthenticationFailedError,)),
    (
        caused(ours.DeliveryTimeoutError("x"), broker_error(6)),
        (theirs.NotLeaderForPartitionError, theirs.KafkaTimeoutError),
    ),
    (
        caused(ours.DeliveryTimeoutError("x"), ours.BrokerConnectionError("y")),
        (theirs.KafkaTimeoutError,),
    ),
    (ours.InvalidTopicError("x"), (theirs.InvalidTopicError,)),
    (FENCED, (theirs.ProducerFenced,)),
    (broker_error(47), (theirs.ProducerFenced,)),
    (caused(ours.TransactionAbortableError("x"), FENCED), (theirs.ProducerFenced,)),
    (
        caused(ours.TransactionAbortedError("x"), caused(ours.KafkaError("y"), FENCED)),
        (theirs.ProducerFenced,),
    ),
    (
        caused(ours.TransactionAbortableError("x"), broker_error(29)),
        (theirs.TopicAuthorizationFailedError,),
    ),
    (ours.TransactionAbortedError("x"), (theirs.KafkaError,)),
    (caused(ours.TransactionAbortableError("x"), TypeError("y")), (theirs.KafkaError,)),
    (broker_error(7), (theirs.RequestTimedOutError,)),
    (broker_error(10), (theirs.MessageSizeTooLargeError,)),
    (broker_error(999), (theirs.UnknownError,)),
]


@pytest.mark.parametrize(
    ("error", "kinds"), TABLE, ids=[f"{type(e).__name__}-{n}" for n, (e, _) in enumerate(TABLE)]
)
def test_an_error_is_of_both_classes(
    error: ours.KafkaError, kinds: tuple[type[BaseException], ...]
) -> None:
    error.maybe_written = True
    translated: Any = aiokafka_error(error)
    assert isinstance(translated, kinds)
    assert isinstance(translated, type(error))
    assert translated.maybe_written
    assert translated.code == error.code
    assert translated.__cause__ is error.__cause__
    assert str(error) in str(translated)
    assert type(aiokafka_error(error.for_one())) is type(translated)  # made once per pair
    assert aiokafka_error(translated) is translated  # where two calls translate


@pytest.mark.parametrize("code", sorted(BROKER_ERRORS))
def test_a_brokers_code(code: int) -> None:
    """Codes that aiokafka does not know are its UnknownError."""
    translated: Any = aiokafka_error(broker_error(code, "sending"))
    expected = theirs.ProducerFenced if code in (47, 49, 90) else theirs.for_code(code)
    assert isinstance(translated, expected)
    assert isinstance(translated, ours.BrokerError)
    assert (translated.code, translated.name) == (code, BROKER_ERRORS[code][0])
    if expected not in (theirs.ProducerFenced, theirs.UnknownError):
        assert translated.errno == code


def test_the_text_begins_like_aiokafkas() -> None:
    assert str(aiokafka_error(ours.BufferFullError("full"))) == "KafkaTimeoutError: full"
    text = str(aiokafka_error(broker_error(7)))
    assert text.startswith("[Error 7] RequestTimedOutError: REQUEST_TIMED_OUT (7)")


def test_a_partitioners_own_exception() -> None:
    own = KeyError("mine")
    assert aiokafka_error(caused(ours.PartitionerError("x"), own)) is own


@pytest.mark.parametrize("through", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])  # noqa: S301
def test_copies_and_pickles(through: Any) -> None:
    for error, kinds in TABLE:
        translated = aiokafka_error(error)
        other = through(translated)
        assert type(other) is type(translated)
        assert isinstance(other, kinds)
        assert (str(other), other.args) == (str(translated), translated.args)


def test_translation_keeps_what_is_not_ours() -> None:
    with pytest.raises(KeyError), Translation():
        raise KeyError
    invalid = caused(ours.InvalidRecordError("x"), ValueError("y"))
    with pytest.raises(ours.InvalidRecordError) as caught, Translation():
        raise invalid
    assert caught.value is invalid
    with Translation():
        pass


def test_translation_hides_the_error_that_it_replaces() -> None:
    cause = broker_error(6)
    with pytest.raises(theirs.KafkaTimeoutError) as caught, Translation():
        raise ours.DeliveryTimeoutError("x") from cause
    assert caught.value.__cause__ is cause
    assert caught.value.__suppress_context__
