"""Signs of life: who is asked, who is given up, and who comes back."""

from __future__ import annotations

import asyncio

from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    RequestTimedOutError,
)
from kafkaclient.producer.sender.liveness import BrokerLiveness
from kafkaclient.testing.clock import virtual_time

PATIENCE_S = 0.05


class Brokers:
    """``answers[node_id]``: after how many seconds it answers, or why it does not."""

    def __init__(self, **answers: float | KafkaError) -> None:
        self.answers = {int(name[1:]): answer for name, answer in answers.items()}
        self.asked: list[int] = []
        self.changes = 0
        self.health = BrokerLiveness(self, None, self, clock=self.now)

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def wake_at(self) -> None:
        self.changes += 1

    @property
    def brokers(self) -> dict[int, float | KafkaError]:
        return self.answers

    async def probe(self, node_id: int) -> None:
        self.asked.append(node_id)
        answer = self.answers[node_id]
        if isinstance(answer, KafkaError):
            raise answer.with_traceback(None)
        await asyncio.sleep(answer)

    async def watch(self, seconds: float) -> None:
        """Judge every 10 ms for so long."""
        end = self.now() + seconds
        while self.now() < end:
            await asyncio.sleep(0.01)
            self.health.expire_probes(self.now(), float("-inf"), lambda _: PATIENCE_S)


@virtual_time
async def test_who_answers_in_time_lives() -> None:
    brokers = Brokers(b0=0.001, b1=0.02)
    health, since = brokers.health, brokers.now()
    health.suspect([0, 1], since)
    assert health.probe_pending
    await brokers.watch(0.1)
    assert not health.probe_pending
    assert not health.dead
    assert health.alive_since(0, since)
    assert brokers.changes == 1, "told once, when nothing is in doubt any more"
    health.suspect([0, 1], since)
    assert brokers.asked == [0, 1], "what was proven since is not asked again"


@virtual_time
async def test_who_does_not_answer_is_dead_until_it_does() -> None:
    brokers = Brokers(b0=0.001, b1=3.0)
    health, since = brokers.health, brokers.now()
    health.suspect([0, 1], since)
    await brokers.watch(0.1)
    assert health.dead == {1}
    assert not health.probe_pending
    assert not health.alive_since(1, since)
    await brokers.watch(3)
    assert not health.dead
    assert health.alive_since(1, since)


@virtual_time
async def test_who_cannot_be_reached_is_dead_at_once_and_asked_on() -> None:
    brokers = Brokers(b0=BrokerConnectionError("refused"))
    brokers.health.suspect([0], brokers.now())
    await asyncio.sleep(0)
    assert brokers.health.dead == {0}
    brokers.answers[0] = 0.001
    await asyncio.sleep(0.2)
    assert not brokers.health.dead


@virtual_time
async def test_a_call_that_timed_out_is_made_again() -> None:
    brokers = Brokers(b0=RequestTimedOutError("30 s"))
    brokers.health.suspect([0], brokers.now())
    await asyncio.sleep(0)
    assert brokers.health.dead == {0}
    brokers.answers[0] = 0.0
    await asyncio.sleep(0.2)
    assert brokers.asked == [0, 0]
    assert not brokers.health.dead


@virtual_time
async def test_a_refusal_is_a_sign_of_life() -> None:
    brokers = Brokers(b0=AuthenticationError("no"))
    since = brokers.now()
    brokers.health.suspect([0], since)
    await asyncio.sleep(0)
    assert brokers.health.alive_since(0, since)


@virtual_time
async def test_a_broker_that_is_not_in_the_cluster_any_more_is_forgotten() -> None:
    brokers = Brokers(b0=BrokerConnectionError("refused"))
    brokers.health.suspect([0, 7], brokers.now())
    await asyncio.sleep(0.01)
    assert brokers.health.dead == {0}
    del brokers.answers[0]
    await asyncio.sleep(0.2)
    assert not brokers.health.dead
    assert not brokers.health.probe_pending


@virtual_time
async def test_an_answer_that_it_had_to_confirm_will_do_if_it_was_asked_for_since() -> None:
    brokers = Brokers(b0=5.0)
    before = brokers.now()
    await asyncio.sleep(0.01)
    brokers.health.suspect([0], brokers.now())
    await brokers.watch(0.1)
    assert brokers.health.dead == {0}
    brokers.health.confirm([0, 1], before)
    assert brokers.health.dead == {0}
    brokers.health.confirm([0, 1], brokers.now())
    assert not brokers.health.dead
    brokers.health.confirm([0, 1], brokers.now())
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1, "nobody is asked any more"


@virtual_time
async def test_nobody_is_mourned_for_ever() -> None:
    """The cluster has had the time to give up a dead broker: we are the ones who don't reach it."""
    brokers = Brokers(b0=BrokerConnectionError("refused"), b1=1000.0)
    brokers.health.suspect([0], brokers.now())
    await brokers.watch(29)
    assert brokers.health.dead == {0}
    await brokers.watch(2)
    assert not brokers.health.dead


@virtual_time
async def test_nobody_is_asked_after_the_end() -> None:
    brokers = Brokers(b0=1.0)
    brokers.health.close()
    brokers.health.suspect([0], brokers.now())
    await asyncio.sleep(0)
    assert not brokers.asked


@virtual_time
async def test_time_in_which_nothing_could_be_heard_does_not_count() -> None:
    brokers = Brokers(b0=0.3)
    brokers.health.suspect([0], brokers.now())
    await asyncio.sleep(0.2)
    brokers.health.expire_probes(brokers.now(), brokers.now() - 0.01, lambda _: PATIENCE_S)
    assert not brokers.health.dead
    brokers.health.expire_probes(brokers.now(), float("-inf"), lambda _: PATIENCE_S)
    assert brokers.health.dead == {0}
    brokers.health.close()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
