from __future__ import annotations

import asyncio
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.perf.load import Load, LoadOutcome, LoadSpec, RateLimiter, SliceSize
from kafkaclient.perf.traffic import Completed, Traffic, unheard
from kafkaclient.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.perf.latency import Window
    from kafkaclient.perf.traffic import KeyValue

RECORDS = repeat((None, b"x" * 10))


class FakeClient:
    """Acknowledges every record ``delay`` seconds later; holds at most ``room`` of them."""

    name = "fake"

    def __init__(self, delay: float = 0.02, room: int = 1_000_000, fail_every: int = 0) -> None:
        self.delay = delay
        self.room = room
        self.fail_every = fail_every
        self.sent_at: list[float] = []
        self.pending = 0
        self.waited = 0
        self.slices: list[int] = []
        self.transactions: list[int] = []
        """How many records each took."""
        self.began_at: int | None = None
        self._completed: Completed = unheard

    async def start(self, completed: Completed) -> None:
        self._completed = completed
        self._loop = asyncio.get_running_loop()

    async def send(self, records: list[KeyValue], started: float) -> int:
        self.waited += self.pending >= self.room
        while self.pending >= self.room:
            await asyncio.sleep(0.001)
        taken = records[: self.room - self.pending]
        self.slices.append(len(taken))
        for _key, value in taken:
            self.pending += 1
            self.sent_at.append(self._loop.time())
            error = None
            if self.fail_every and len(self.sent_at) % self.fail_every == 0:
                error = TimeoutError("too late")
            self._loop.call_later(self.delay, self._answer, started, len(value), error)
        return len(taken)

    async def begin_transaction(self) -> None:
        assert self.began_at is None, "one after the other"
        self.began_at = len(self.sent_at)

    async def commit_transaction(self) -> None:
        assert self.began_at is not None
        await asyncio.sleep(0.1)
        self.transactions.append(len(self.sent_at) - self.began_at)
        self.began_at = None

    async def flush(self) -> None:
        while self.pending:
            await asyncio.sleep(0.001)

    async def stop(self, timeout: float | None = None) -> None: ...

    def traffic(self) -> Traffic | None:
        return None

    def metrics(self) -> Mapping[str, Any]:
        return {}

    def _answer(self, started: float, nbytes: int, error: BaseException | None) -> None:
        self.pending -= 1
        self._completed(started, self._loop.time(), 1, nbytes, error)


def run(client: FakeClient, spec: LoadSpec, windows: list[Window] | None = None) -> LoadOutcome:
    async def main() -> LoadOutcome:
        load = Load(
            client,
            spec,
            on_window=None if windows is None else windows.append,
            clock=asyncio.get_running_loop().time,
        )
        outcome = await load.run(RECORDS)
        assert load.sent == spec.num_records
        assert load.acknowledged + load.failed == spec.num_records
        return outcome

    return run_virtual(main())


def test_the_rate_is_held_and_every_record_is_answered() -> None:
    client = FakeClient()
    windows: list[Window] = []
    outcome = run(client, LoadSpec(10_000, rate=1000, reporting_interval_s=1.0), windows)
    assert outcome.summary.records == 10_000
    assert outcome.summary.nbytes == 100_000
    assert 9.9 < outcome.summary.seconds < 10.2
    assert outcome.summary.avg_ms is not None
    assert 19.9 < outcome.summary.avg_ms < 20.1
    assert 9 <= len(windows) <= 10
    assert all(950 <= window.records <= 1050 for window in windows)
    assert outcome.steady_state is None


def test_records_are_spread_over_the_time() -> None:
    client = FakeClient()
    run(client, LoadSpec(2000, rate=1000))
    start = client.sent_at[0]
    for number, sent_at in enumerate(client.sent_at):
        assert abs(sent_at - start - number / 1000) < 0.005


def test_latency_counts_the_wait_for_room() -> None:
    client = FakeClient(delay=0.1, room=10)
    outcome = run(client, LoadSpec(100))
    assert client.waited
    assert outcome.summary.max_ms is not None
    assert outcome.summary.max_ms > 199


def test_failed_records_are_counted_by_cause_and_not_as_sent() -> None:
    outcome = run(FakeClient(fail_every=10), LoadSpec(1000, rate=10_000))
    assert outcome.summary.records == 900
    assert outcome.errors == {"TimeoutError: too late": 100}


def test_steady_state_leaves_the_warm_up_out() -> None:
    windows: list[Window] = []
    spec = LoadSpec(5000, rate=1000, warmup_records=2000, reporting_interval_s=1.0)
    outcome = run(FakeClient(), spec, windows)
    assert outcome.steady_state is not None
    assert outcome.summary.records == 5000
    assert outcome.steady_state.records == 3000
    assert 2.9 < outcome.steady_state.seconds < 3.2
    assert sum(window.records for window in windows) <= 5000


def test_transactions_end_when_a_record_finds_them_old_enough() -> None:
    """As in Kafka's tool: that record is the last one, and the next transaction begins with the
    next record. What is left is committed at the end."""
    client = FakeClient(delay=0)
    outcome = run(client, LoadSpec(1000, rate=1000, transaction_s=0.3))
    *full, rest = client.transactions
    assert len(full) >= 2
    assert all(299 <= taken <= 410 for taken in full), "the pace is caught up with in a burst"
    assert 0 < rest < 410
    assert sum(client.transactions) == 1000
    assert outcome.summary.seconds > client.sent_at[-1] - client.sent_at[0] + 0.09, (
        "the commit, too"
    )


def test_no_transaction_begins_without_a_record() -> None:
    client = FakeClient(delay=0)
    run(client, LoadSpec(3, rate=1, transaction_s=0.5))
    assert client.sent_at == [0, 0, 1]
    assert client.transactions == [3]


class TestThrottle:
    def test_without_a_rate_everything_is_due_and_it_never_pauses(self) -> None:
        throttle = RateLimiter(None, 0.0)
        assert throttle.due(1_000_000, 0.0) > 1_000_000
        assert throttle.pause(1_000_000, 1_000_000, 0.0) == 0.0

    def test_a_sender_ahead_owes_a_records_time_each_and_sleeps_from_two_ms(self) -> None:
        throttle = RateLimiter(1000, 0.0)
        assert throttle.pause(1, 1, 0.0) == 0.0
        assert throttle.pause(2, 1, 0.0005) == 0.0
        assert throttle.pause(3, 1, 0.0006) == 0.002
        assert throttle.pause(4, 1, 0.0007) == 0.0

    def test_a_sender_behind_catches_up_in_a_burst(self) -> None:
        throttle = RateLimiter(1000, 0.0)
        assert throttle.due(0, 1.0) == 1003
        assert throttle.pause(1000, 1000, 1.0) == 0.0

    @pytest.mark.parametrize("rate", [0.5, 1, 300, 1000, 2048, 100_000])
    def test_a_slice_is_what_single_records_would_be_until_the_pause(self, rate: float) -> None:
        in_slices, one_by_one = RateLimiter(rate, 0.0), RateLimiter(rate, 0.0)
        now, sent = 0.0, 0
        for _ in range(20):
            count = in_slices.due(sent, now)
            single = [one_by_one.pause(sent + n + 1, 1, now) for n in range(count)]
            sent += count
            pause = in_slices.pause(sent, count, now)
            assert not any(single[:-1])
            assert single[-1] == pytest.approx(pause)
            assert pause >= 0.002
            now += pause * 1.3  # the timer fires late


class TestSliceSize:
    def test_a_slice_takes_about_a_tenth_of_a_millisecond(self) -> None:
        size, seconds_each = SliceSize(), 1e-6
        for _ in range(10):
            size.adapt(size.records, size.records * seconds_each)
        assert 50 <= size.records <= 200
        for _ in range(10):
            size.adapt(size.records, size.records * seconds_each * 1000)
        assert size.records == 1

    def test_a_slice_that_was_cut_short_says_nothing(self) -> None:
        size = SliceSize()
        before = size.records
        size.adapt(before - 1, 0.0)
        size.adapt(1, 1.0)  # it waited for buffer space
        assert size.records == before


def test_slices_end_with_the_warm_up() -> None:
    client = FakeClient()
    run(client, LoadSpec(5000, warmup_records=123))
    sums = [sum(client.slices[: n + 1]) for n in range(len(client.slices))]
    assert 123 in sums
    assert max(client.slices) > 100


def test_the_load_never_runs_ahead_of_its_rate_on_timers_that_fire_early() -> None:
    client = FakeClient()

    async def main() -> None:
        # To this clock every sleep of the loop is a seventh too short, as uvloop's may be.
        load = Load(
            client,
            LoadSpec(2048, rate=2048),
            clock=lambda: asyncio.get_running_loop().time() * 0.85,
        )
        outcome = await load.run(RECORDS)
        assert 2000 < len(client.sent_at) / outcome.summary.seconds <= 2048

    run_virtual(main())
