"""What each public method of a producer needs: its runtime, or the error that says why not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.cluster.waits import in_another_loop
from kafkaclient.errors import ProducerClosedError, ProducerStateError
from kafkaclient.metrics_push.points import ApplicationMetrics, PushesMetricsMixin
from kafkaclient.producer.batches.serializers import Serializers
from kafkaclient.producer.settings import ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.runtime import ProducerRuntime


class ProducerBase(PushesMetricsMixin):
    """A producer's options, its state and, once it was started, its runtime."""

    # Class-level defaults: __del__ also runs when __init__ raised.
    _state = ProducerState.NEW
    _core: ProducerRuntime | None = None

    def __init__(self, config: ProducerConfig, wall_clock: Callable[[], float]) -> None:
        self.config: ProducerConfig = config
        self._serializers = Serializers.of(config)
        self._wall_clock = wall_clock
        self._application_metrics = ApplicationMetrics()

    def _open(self, *, in_transaction: bool = True) -> ProducerRuntime:
        """The runtime of a running producer; raises if records are not taken now.

        ``in_transaction`` False: the call does not need an open transaction.
        """
        core = self._core
        if core is not None and core.fatal is not None:
            raise core.fatal.with_traceback(None)  # it is raised many times
        if core is None or self._state is not ProducerState.RUNNING:
            raise self._not_running(_not_done(in_transaction))
        if asyncio._get_running_loop() is not core.loop:
            self._check_loop(core, _not_done(in_transaction))
        if in_transaction and core.transactions is not None:
            core.transactions.check_open()
        return core

    def _check_loop(self, core: ProducerRuntime, what: str) -> None:
        if asyncio._get_running_loop() is not core.loop:
            raise ProducerStateError(f"{what}: {in_another_loop('producer', core.loop)}")

    def _started(self, what: str) -> ProducerRuntime:
        """The runtime, from :meth:`start` on, also of a stopped producer."""
        if self._core is None or self._state is ProducerState.FORKED:
            raise self._not_running(what)
        return self._core

    def _not_running(self, what: str) -> ProducerStateError:
        closed = self._state in (ProducerState.STOPPING, ProducerState.STOPPED)
        return (ProducerClosedError if closed else ProducerStateError)(
            f"{what}: the producer {self._state.value}"
        )


def _not_done(is_record: bool) -> str:
    return "the record was not sent" if is_record else "nothing was done"
