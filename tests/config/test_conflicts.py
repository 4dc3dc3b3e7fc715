"""Options that do not go together: refused, or settled with a warning."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkaclient.config.kinds import INT32_MAX
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.errors import ConfigError

BOOTSTRAP = "localhost:9092"


def build(*, mapping: dict[str, Any] | None = None, **options: Any) -> ProducerConfig:
    return ProducerConfig.build({"bootstrap.servers": BOOTSTRAP, **(mapping or {})}, options)


IDEMPOTENCE_CONFLICTS = [
    ({"acks": 1}, "acks=all (given: acks=1)"),
    ({"acks": "0"}, "acks=all (given: acks=0)"),
    ({"retries": 0}, "retries above 0 (given: retries=0)"),
    (
        {"max.in.flight.requests.per.connection": 6},
        "at most 5 requests in flight (given: max.in.flight.requests.per.connection=6)",
    ),
]


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS[:3])
def test_conflict_turns_default_idempotence_off(
    conflict: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kafkaclient.config"):
        assert build(mapping=conflict).enable_idempotence is False
    assert words in caplog.text


def test_more_requests_in_flight_than_idempotence_bears() -> None:
    """Java warned and turned it off before 4.0. Acks=1 says itself that it is not wanted."""
    with pytest.raises(ConfigError, match=r"at most 5 requests.*enable_idempotence=False"):
        build(mapping={"max.in.flight.requests.per.connection": 6})
    for off in ({"acks": 1}, {"enable.idempotence": "false"}):
        options = {"max.in.flight.requests.per.connection": 6, **off}
        assert build(mapping=options).enable_idempotence is False


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS)
def test_conflict_with_idempotence_asked_for(conflict: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(mapping={"enable.idempotence": "true", **conflict})
    assert str(caught.value) == (
        f"enable.idempotence=True is in conflict with another option: idempotence needs {words}"
    )


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS)
def test_no_conflict_without_idempotence(
    conflict: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert build(mapping={"enable.idempotence": False, **conflict}).enable_idempotence is False
    assert words not in caplog.text


@pytest.mark.parametrize(("conflict", "words"), IDEMPOTENCE_CONFLICTS)
def test_conflict_with_transactions(conflict: dict[str, Any], words: str) -> None:
    """As in Java: a transactional id asks for idempotence, which is not turned off then."""
    with pytest.raises(ConfigError) as caught:
        build(mapping={"transactional.id": "tx", **conflict})
    assert str(caught.value) == (
        f"transactional.id='tx' is in conflict with another option: idempotence needs {words}"
    )


def test_transactions_without_idempotence() -> None:
    with pytest.raises(ConfigError) as caught:
        build(transactional_id="tx", enable_idempotence=False)
    assert str(caught.value) == (
        "transactional_id='tx' is in conflict with enable_idempotence=False: transactions need "
        "idempotence"
    )


def test_transactions() -> None:
    config = build(mapping={"transactional.id": " tx ", "transaction.timeout.ms": "1000"})
    assert (config.transactional_id, config.transaction_timeout_ms) == ("tx", 1000)
    assert (config.enable_idempotence, config.acks) == (True, -1)
    for empty in ("", " ", 5):
        with pytest.raises(ConfigError, match="not empty"):
            build(transactional_id=empty)


def test_delivery_timeout_given_too_low() -> None:
    with pytest.raises(ConfigError) as caught:
        build(delivery_timeout_ms=30_004)
    assert str(caught.value) == (
        "delivery_timeout_ms=30004 is not accepted: give at least "
        "linger_ms + request_timeout_ms = 30005"
    )
    assert build(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_delivery_timeout_by_default_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkaclient.config"):
        config = build(request_timeout_ms=200_000, linger_ms=0.5)
    assert config.delivery_timeout_ms == 200_001
    assert "delivery_timeout_ms is raised" in caplog.text
    assert build(linger_ms=2**40, request_timeout_ms=INT32_MAX).delivery_timeout_ms == INT32_MAX


@pytest.mark.parametrize(
    ("given", "first", "longest"),
    [
        ({}, 100, 1000),
        ({"retry.backoff.ms": 5000}, 5000, 5000),
        ({"retry.backoff.max.ms": 20}, 20, 20),
        ({"retry.backoff.ms": 5000, "retry.backoff.max.ms": 20}, 20, 20),
        ({"retry.backoff.ms": 10}, 10, 1000),
    ],
)
def test_first_pause_is_never_above_the_longest(
    given: dict[str, Any], first: int, longest: int
) -> None:
    config = build(mapping=given)
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (first, longest)
