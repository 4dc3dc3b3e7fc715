"""The load of one client, on a client made up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from experiments.chaos import worker as module
from experiments.chaos.clients import cause_of
from experiments.chaos.outcomes import read_outcomes
from experiments.chaos.streams import Spec, read_stamp
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import BufferFullError, DeliveryTimeoutError
from kafkaclient.testing.clock import run_virtual

if TYPE_CHECKING:
    from experiments.chaos.clients import Done


class Client:
    """Answers 10 ms later; refuses some records, fails some, forgets some."""

    def __init__(self, made: list[Client]) -> None:
        self.sent: list[tuple[str, bytes, bytes | None, int | None]] = []
        self.stopped = False
        made.append(self)

    async def start(self) -> None: ...

    async def send(
        self, topic: str, value: bytes, key: bytes | None, partition: int | None, done: Done
    ) -> None:
        self.sent.append((topic, value, key, partition))
        number = len(self.sent)
        if number == 3:
            raise BufferFullError("no room")
        if number == 5:
            return
        error = DeliveryTimeoutError("too late") if number == 7 else None
        asyncio.get_running_loop().call_later(0.01, done, error, 1, number)

    async def stop(self, timeout: float) -> None:
        assert timeout > 120
        await asyncio.sleep(0.1)
        self.stopped = True

    def retried(self) -> int | None:
        return 4


@pytest.fixture
def told(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Client], list[dict[str, Any]]]:
    made: list[Client] = []
    facts: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "make_client", lambda _name, _config: Client(made))

    async def main() -> None:
        clock = asyncio.get_running_loop().time

        async def begins_at() -> float:
            return clock() + 0.2

        await module.run(spec, begins_at, facts.append, clock=clock)

    run_virtual(main())
    return made, facts


def test_every_record_sent_is_accounted_for(
    spec: Spec, told: tuple[list[Client], list[dict[str, Any]]]
) -> None:
    made, facts = told
    assert facts[0] == {"ready": True}
    end = facts[-1]["end"]
    assert [client.stopped for client in made] == [True, True]
    assert sum(end["sent"]) == sum(len(client.sent) for client in made)
    assert 0.9 * spec.rate * spec.seconds <= sum(end["sent"]) <= spec.rate * spec.seconds
    assert end["causes"] == {"BufferFullError": 2, "DeliveryTimeoutError": 2}
    assert end["examples"]["BufferFullError"] == "no room"
    assert end["retried"] == 8
    outcomes = list(read_outcomes(Path(spec.outcomes)))
    assert len(outcomes) == sum(end["sent"]) - 2
    assert sum(outcome.acked for outcome in outcomes) == len(outcomes) - 4
    answered = next(outcome for outcome in outcomes if outcome.acked)
    assert answered.latency == pytest.approx(0.01)
    assert answered.partition == 1


def test_records_of_a_stream_are_numbered_in_the_order_they_are_handed_over(
    spec: Spec, told: tuple[list[Client], list[dict[str, Any]]]
) -> None:
    streams = spec.streams
    next_number = [0] * len(streams)
    for producer, client in enumerate(told[0]):
        for topic, value, key, partition in client.sent:
            mark = read_stamp(value)
            stream = streams[mark.stream]
            assert mark.producer == stream.producer == producer
            assert (topic, key, partition) == (f"topic-{stream.kind}", stream.key, stream.partition)
            assert mark.number == next_number[mark.stream]
            next_number[mark.stream] += 1
    assert next_number == told[1][-1]["end"]["sent"]


def test_failures_that_are_alike_have_one_name() -> None:
    assert cause_of(broker_error(19, "records")) == "NOT_ENOUGH_REPLICAS"
    assert cause_of(DeliveryTimeoutError("100 records")) == "DeliveryTimeoutError"
    assert cause_of(ValueError()) == "ValueError"

    class Peer:
        def name(self) -> str:
            return "_MSG_TIMED_OUT"

    assert cause_of(RuntimeError(Peer())) == "RuntimeError _MSG_TIMED_OUT"
