"""The end of a transaction, in a task of its own, so that it has one outcome for all who ask."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["EndTxnTask"]

_log = logging.getLogger(__name__)


class EndTxnTask:
    """A commit or an abort under way: ``work(ending)`` does it; ``on_defect(error)`` is called when
    that fails with anything but a KafkaError."""

    def __init__(
        self,
        work: Callable[[EndTxnTask], Coroutine[None, None, None]],
        *,
        commit: bool,
        on_defect: Callable[[KafkaError], None],
    ) -> None:
        self.commit = commit
        self.error: KafkaError | None = None
        self.sent = False
        """The coordinator may know of it: there is no other way than to learn its outcome."""
        self.told = False
        """Somebody knows the outcome."""
        self._on_defect = on_defect
        self.task = asyncio.get_running_loop().create_task(
            self._run(work), name=f"kafkaclient-{self.name}"
        )

    @property
    def name(self) -> str:
        """What the application has called."""
        return "commit_transaction" if self.commit else "abort_transaction"

    @property
    def over(self) -> bool:
        """Whether it has come to its end, and somebody knows."""
        return self.told and self.task.done()

    async def wait(self, seconds: float) -> bool:
        """Wait for the end up to ``seconds``; whether it has come. Cancelled, it still comes."""
        await asyncio.wait({self.task}, timeout=seconds)
        self.told |= self.task.done()
        return self.task.done()

    async def _run(self, work: Callable[[EndTxnTask], Coroutine[None, None, None]]) -> None:
        try:
            await work(self)
        except KafkaError as error:
            self.error = error
        except Exception as defect:  # noqa: BLE001 - nobody may be left waiting
            _log.exception("ending a transaction failed")
            self.error = KafkaError(f"{self.name} failed: {defect!r}; this is a defect")
            self.error.__cause__ = defect
            self._on_defect(self.error)
