"""A scrape of an application that runs, without brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkaclient.streams.metrics import AppState, StreamsMetrics, StreamsMetricsSnapshot
from kafkaclient.streams.tasks import TaskDescription, TaskId, TaskState

if TYPE_CHECKING:
    import asyncio


class App:
    """What the collector uses of a StreamsApp."""

    def __init__(self, application_id: str = "words") -> None:
        self.config: Any = SimpleNamespace(application_id=application_id)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state = AppState.RUNNING
        self.now = 100.0
        self.counted = StreamsMetrics(lambda: self.now)
        self.tasks = [
            TaskDescription(TaskId(0, 0), TaskState.RUNNING, 5, None),
            TaskDescription(TaskId(0, 1), TaskState.STANDBY, 5, 7),
        ]
        self.counted.processed(TaskId(0, 0), 20, 0.5, 0.1)
        self.counted.committed(0.02)
        self.counted.rebalanced(0.3)

    def metrics(self) -> StreamsMetricsSnapshot:
        return self.counted.snapshot(self.state, self.tasks)
