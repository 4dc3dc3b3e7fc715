"""The committers of an instance: exactly once, one for all tasks; at least once, one for each."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from kafkaclient.streams.runtime.committer import Committer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.streams.runtime.outputs import Output
    from kafkaclient.streams.runtime.task import Task, TaskOptions
    from kafkaclient.streams.tasks import TaskId


class Committers:
    """Owns the instance's ``output``, and makes what commits each task.

    Exactly once, all tasks share a transaction. At least once, each task commits on its own: it
    does not wait for records of other tasks, whose broker may take nothing. ``on_failed`` and
    ``crash``: as for :class:`.Committer`.
    """

    def __init__(
        self,
        output: Output,
        gate: CommitGate,
        options: TaskOptions,
        *,
        on_failed: Callable[[Task, BaseException], None],
        crash: Callable[[BaseException], None],
    ) -> None:
        self.output = output
        self._gate = gate
        self._options = options
        self._on_failed = on_failed
        self._crash = crash
        self._due_at = -math.inf
        self._committers: dict[TaskId | None, Committer] = {}
        """Task -> what commits it here, also after the task has left and come back. Exactly once,
        None -> what commits all tasks."""

    async def start(self) -> None:
        """Start the output. Raises as :meth:`.Output.start`."""
        await self.output.start()

    def of(self, task: Task) -> Committer:
        """What commits the task."""
        key = None if self.output.is_transactional else task.id
        if key not in self._committers:
            self._committers[key] = Committer(
                self.output,
                self._gate,
                self._next_due,
                on_failed=self._on_failed,
                crash=self._crash,
                observer=self._options.observer,
                clock=self._options.clock,
            )
        return self._committers[key]

    def _next_due(self) -> float:
        """When to commit what is added now: all tasks at the same time, because their offsets
        share a request then."""
        now = self._options.clock()
        if now >= self._due_at:
            self._due_at = now + self._options.commit_interval_s
        return self._due_at

    async def close(self) -> None:
        """End without a commit: work that is not committed is dropped."""
        await asyncio.gather(*(each.close() for each in self._committers.values()))
        await self.output.stop()
