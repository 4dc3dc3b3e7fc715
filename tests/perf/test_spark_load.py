from __future__ import annotations

import asyncio
import pickle
from array import array
from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BootstrapError, ConfigError
from kafkaclient.perf import spark_load
from kafkaclient.perf.latency import Distribution, Summary
from kafkaclient.perf.load import LoadOutcome, LoadSpec
from kafkaclient.perf.run import Labels, LoadRun, ProducerPlan, merged, record_of, shares
from kafkaclient.perf.spark_load import check_slots, run_together
from kafkaclient.perf.traffic import (
    BrokerTraffic,
    PartitionTraffic,
    Traffic,
    monotonic_payloads,
    random_payloads,
)
from kafkaclient.spark.jobs import SparkJobError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LABELS = Labels("default", 5.0)
SPEC = LoadSpec(10, rate=300.0, warmup_records=4)
CONFIG = {"client.id": "c", "transactional.id": "t", "bootstrap.servers": "b:1"}


def plans(producers: int = 3, spec: LoadSpec = SPEC) -> list[ProducerPlan]:
    records = partial(random_payloads, 10)
    whole = ProducerPlan("kafkaclient", "topic", CONFIG, spec, LABELS, records)
    return shares(whole, producers)


def run(latencies_ms: list[float], seconds: float, bytes_sent: int) -> LoadRun:
    times = array("f", [latency / 1e3 for latency in latencies_ms])
    count = len(latencies_ms)
    avg = sum(latencies_ms) / count if count else None
    summary = Summary(count, 100 * count, seconds, avg, Distribution(times))
    outcome = LoadOutcome(summary, summary, Counter({"TimeoutError: late": 2}))
    traffic = Traffic(
        (BrokerTraffic(0, bytes_sent, 3, window=5), BrokerTraffic(2, 50, 1)),
        (PartitionTraffic(0, 0, 5, bytes_sent, 2), PartitionTraffic(1, 2, 5, 50, 1)),
        1.5,
    )
    return LoadRun(outcome, traffic, record_of("c", 100.0, outcome, traffic, LABELS))


def test_a_load_is_shared_evenly_and_whole() -> None:
    found = plans()
    assert [plan.spec.num_records for plan in found] == [4, 3, 3]
    assert [plan.spec.warmup_records for plan in found] == [2, 1, 1]
    assert {plan.spec.rate for plan in found} == {100.0}
    assert [plan.config["transactional.id"] for plan in found] == ["t-0", "t-1", "t-2"]
    assert [plan.config["client.id"] for plan in found] == ["c-0", "c-1", "c-2"]
    assert {plan.config["bootstrap.servers"] for plan in found} == {"b:1"}
    assert {plan.spec.rate for plan in plans(spec=LoadSpec(10))} == {None}


def test_each_producer_sends_other_records() -> None:
    whole = ProducerPlan("kafkaclient", "topic", CONFIG, SPEC, LABELS, monotonic_payloads)
    shared = [[value for _, value in islice(plan.records(), 3)] for plan in shares(whole, 3)]
    assert shared == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]


def test_more_producers_than_records_are_refused() -> None:
    with pytest.raises(ConfigError, match="10 records cannot be shared by 11"):
        plans(11)


def test_a_plan_travels() -> None:
    again = pickle.loads(pickle.dumps(plans()[0]))  # noqa: S301 - our own
    assert again.spec == plans()[0].spec
    assert len(next(iter(again.records()))[1]) == 10


@pytest.mark.parametrize("percentile", [50, 95, 99, 99.9])
def test_merged_percentiles_are_those_of_all_records(percentile: float) -> None:
    slow, fast = [float(ms) for ms in range(50, 550)], [float(ms) for ms in range(1, 301)]
    together = run(slow + fast, 1.0, 0).outcome.summary.distribution
    whole = merged([run(slow, 1.0, 1), run(fast, 1.0, 1)], "c", SPEC, LABELS)
    distribution = whole.outcome.summary.distribution
    assert distribution.percentile_ms(percentile) == together.percentile_ms(percentile)
    assert distribution.max_ms == together.max_ms
    assert distribution.count == 800


def test_the_whole_is_the_sum_and_lasts_as_long_as_the_longest() -> None:
    whole = merged([run([1.0], 2.0, 150), run([4.0, 4.0], 5.0, 250)], "c", SPEC, LABELS)
    summary = whole.outcome.summary
    assert (summary.records, summary.nbytes, summary.seconds) == (3, 300, 5.0)
    assert summary.avg_ms == pytest.approx(3.0)
    assert whole.outcome.steady_state is not None
    assert whole.outcome.errors == {"TimeoutError: late": 4}
    record = whole.record
    assert (record.rate, record.records, record.errors) == (300.0, 3, 4)
    assert record.bytes_per_broker == (400, 100)
    assert record.requests_per_broker == (6, 2)
    assert whole.traffic is not None
    assert [part.records_sent for part in whole.traffic.partitions] == [10, 10]
    assert whole.traffic.skew == pytest.approx(1.6)
    assert whole.traffic.brokers[0].window is None, "gauges are each producer's own"


def test_producers_that_delivered_nothing_can_be_merged() -> None:
    whole = merged([run([], 1.0, 0), run([], 1.0, 0)], "c", SPEC, LABELS)
    assert whole.outcome.summary.line().startswith("0 records sent, 0.000000 records/sec")


class Context:
    """Stands for a SparkContext: runs tasks in this process, and pickles plans and results."""

    def parallelize(self, plans: list[Any], slices: int) -> Context:
        assert len(plans) == slices
        self.plans = pickle.loads(pickle.dumps(plans))  # noqa: S301 - our own
        return self

    def barrier(self) -> Context:
        return self

    def mapPartitions(self, work: Callable[[Any], Iterator[Any]]) -> Context:
        self.work = work
        return self

    def collect(self) -> list[Any]:
        found = [each for plan in self.plans for each in self.work(iter([plan]))]
        again: list[Any] = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
        return again


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    barrier = type("B", (), {"get": type("C", (), {"barrier": lambda _self: None})})
    module = type("pyspark", (), {"BarrierTaskContext": barrier})
    monkeypatch.setattr(spark_load, "import_module", lambda _name: module)
    monkeypatch.setattr("kafkaclient.perf.run.loop_factory", lambda: None)
    context = Context()
    return type("Spark", (), {"_sc": context, "sparkContext": context})()


def test_what_a_task_measured_arrives_whole(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_plan(plan: ProducerPlan) -> LoadRun:
        await asyncio.sleep(0)
        return run([1.0] * plan.spec.num_records, 2.0, 150)

    monkeypatch.setattr("kafkaclient.perf.run.run_plan", run_plan)
    found = run_together(spark, plans())
    for before, after in zip([run([1.0] * n, 2.0, 150) for n in (4, 3, 3)], found, strict=True):
        assert after.outcome.summary.line() == before.outcome.summary.line()
        assert after.outcome.errors == before.outcome.errors
        assert after.traffic == before.traffic
        assert after.record.as_json() == before.record.as_json()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(BootstrapError("nobody"), SparkJobError), (ConfigError("bad"), ConfigError)],
)
def test_a_task_that_fails_is_named(
    spark: Any, monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    async def run_plan(plan: ProducerPlan) -> LoadRun:
        await asyncio.sleep(0)
        if plan.config["client.id"] == "c-1":
            raise raised
        return run([1.0], 2.0, 150)

    monkeypatch.setattr("kafkaclient.perf.run.run_plan", run_plan)
    with pytest.raises(expected, match=f"producer 1: {raised}"):
        run_together(spark, plans())


def test_spark_connect_has_no_barriers() -> None:
    with pytest.raises(ConfigError, match="Spark Connect"):
        run_together(object(), plans())


@pytest.mark.parametrize(
    ("master", "producers"),
    [
        ("local[2]", 2),
        ("local[*]", 99),
        ("local", 1),
        ("local[4,2]", 4),
        ("yarn", 99),
        ("spark://a:1", 9),
    ],
)
def test_masters_with_room(master: str, producers: int) -> None:
    check_slots(master, producers)


@pytest.mark.parametrize(("master", "producers"), [("local[2]", 3), ("local", 2)])
def test_a_local_master_without_room_is_refused(master: str, producers: int) -> None:
    with pytest.raises(ConfigError, match=rf"--spark-master 'local\[{producers}\]'"):
        check_slots(master, producers)
