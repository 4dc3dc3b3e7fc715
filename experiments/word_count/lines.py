"""The input: lines of words, and how often each word is in them."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.word_count.plan import Plan

__all__ = ["Input", "lines"]

_CHUNK = 10_000  # words


def lines(plan: Plan) -> Iterator[list[str]]:
    """The words of each line. Equal plans make equal lines.

    Word number n is drawn about 1/n times as often as the first, as in natural language.
    """
    rng = Random(f"words {plan.seed}")
    vocabulary = [f"word{number}" for number in range(plan.vocabulary)]
    weights = list(accumulate(1 / number for number in range(1, plan.vocabulary + 1)))
    left, size = plan.words, plan.words_per_line
    while left > 0:
        chunk = min(left, _CHUNK - _CHUNK % size or size)
        words = rng.choices(vocabulary, cum_weights=weights, k=chunk)
        yield from (words[start : start + size] for start in range(0, chunk, size))
        left -= chunk


class Input:
    """Writes the input topic; ``counts`` is how often each word was written."""

    def __init__(self, plan: Plan) -> None:
        self.counts: Counter[str] = Counter()
        self.written = 0
        """Words so far."""
        self._plan = plan

    async def write(self, bootstrap: str, topic: str) -> None:
        """Write all lines, round robin, without keys."""
        plan, turn = self._plan, 0
        async with Producer(bootstrap) as producer:
            batches: list[list[bytes]] = [[] for _ in range(plan.partitions)]
            for words in lines(plan):
                self.counts.update(words)
                self.written += len(words)
                batches[turn % plan.partitions].append(" ".join(words).encode())
                turn += 1
                if turn % _CHUNK == 0:
                    await self._send(producer, topic, batches)
            await self._send(producer, topic, batches)

    async def _send(self, producer: Producer, topic: str, batches: list[list[bytes]]) -> None:
        for partition, values in enumerate(batches):
            if values:
                await (await producer.send_many(topic, values, partition=partition))
            batches[partition] = []
