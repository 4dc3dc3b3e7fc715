"""An in-process Kafka cluster for tests: :class:`FakeCluster`."""

from __future__ import annotations

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.cluster import FakeCluster
from kafkaclient.testing.fake.interceptors import (
    CLOSE,
    CLOSE_ANSWER,
    DROP,
    DROP_ANSWER,
    Control,
    Request,
    delay,
    delay_answer,
)
from kafkaclient.testing.fake.log import FakeRecord
from kafkaclient.testing.fake.serving import Sasl

__all__ = [
    "CLOSE",
    "CLOSE_ANSWER",
    "DROP",
    "DROP_ANSWER",
    "Control",
    "ErrorCode",
    "FakeCluster",
    "FakeRecord",
    "Request",
    "Sasl",
    "delay",
    "delay_answer",
]
