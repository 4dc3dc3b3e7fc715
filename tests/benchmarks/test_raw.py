from __future__ import annotations

import pytest

from benchmarks.produce.raw import ready_made
from kafkaclient.wire.codec import decode_request
from kafkaclient.wire.records import iter_records, verify_crc

VALUES = [b"a" * 100, b"b" * 100]


@pytest.mark.parametrize("batches", [1, 2, 6])
def test_requests_are_what_a_broker_reads(batches: int) -> None:
    requests = ready_made("t", VALUES, 1000, batches, 6)
    assert len(requests) == 6
    for first, request in enumerate(requests):
        assert int.from_bytes(request.frame[:4], "big") == len(request.frame) - 4
        frame = decode_request(request.frame[4:])
        assert (frame.correlation_id, frame.message.acks) == (first, -1)
        (topic,) = frame.message.topic_data
        assert topic.name == "t"
        places = [data.index for data in topic.partition_data]
        assert places == [(first + more) % 6 for more in range(batches)]
        records = 0
        for data in topic.partition_data:
            batch = bytes(data.records)
            assert 1000 - 120 < len(batch) <= 1000
            verify_crc(batch)
            found = list(iter_records(batch))
            assert {record.value for record in found} <= set(VALUES)
            records += len(found)
        assert request.records == records
