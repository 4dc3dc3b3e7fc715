"""``SyncProducer.send_many``."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.errors import (
    InvalidRecordError,
)
from tests.sync.support import one_topic, running, values


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"values": "abc"}, "values must be a sequence"),
        ({"values": b"abc"}, "values must be a sequence"),
        ({"values": None}, "values must be a sequence"),
        ({"values": ["a"], "keys": "k"}, "keys must be a sequence"),
        ({"values": ["a"], "headers": 5}, "headers"),
    ],
)
def test_a_column_that_is_no_sequence(column: Any, text: str) -> None:
    fake = one_topic()
    options = {"value_serializer": lambda v: b"%r" % v}
    with running(fake, **options) as producer, pytest.raises(InvalidRecordError, match=text):
        producer.send_many("t", **column)
    assert values(fake) == []
