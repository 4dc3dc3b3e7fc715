"""Outcomes of records whose batch the broker finds too large."""

from __future__ import annotations

from kafkaclient.broker_errors import ErrorCode
from tests.sync.support import one_topic, running


def test_each_record_of_a_batch_that_was_split_has_its_outcome() -> None:
    """The parts are acknowledged one after the other."""
    fake = one_topic()
    options = {"linger_ms": 100, "max_in_flight_requests_per_connection": 1}
    with running(fake, **options) as producer:
        producer.send_and_wait("t", b"known")
        fake.fail_produce("t", 0, ErrorCode.MESSAGE_TOO_LARGE)
        fake.delay_produce(0, 0.05)
        sent = [producer.send("t", b"%d" % n) for n in range(10)]
        assert [future.result(5).offset for future in sent] == list(range(1, 11))
        assert producer.metrics().producer["batch-split-total"] == 1
