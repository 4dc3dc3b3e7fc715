"""A query copies a topic under faults, once for each combination; then rows are compared."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

from examples.standalone_spark import standalone_spark
from experiments.counting.outcome import read_committed
from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.spark_chaos.drivers import UNTIL_THE_END, Driver, pyspark_home, spark_python
from experiments.spark_chaos.outcome import Load, Outcome
from experiments.spark_chaos.plan import BROKERS, Plan
from experiments.spark_chaos.results import Results, Run
from experiments.spark_chaos.strikes import Strikes, ledger_name
from kafkaclient.admin import Admin, TxnState
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.spark_chaos.combinations import Combination

__all__ = ["Experiment"]

_SOURCE, _SINK, _PREFIX = "spark-chaos-in", "spark-chaos-out", "spark-chaos"
_LOOK_S = 0.5
_LAST_ATTEMPTS = 5
_CONFIG = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # An executor that is paused for longer is lost, and comes back.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "5s",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "5s",
}


class Experiment(BaseExperiment[Plan, Results]):
    """Makes a run of each chosen combination. A run that fails is reported, and the next is made.

    Raises ConfigError if an environment with PySpark is missing.
    """

    results_type = Results

    async def run(self) -> None:
        chosen = self.plan.chosen
        for version in sorted({each.spark for _, each in chosen}):
            if not spark_python(version).exists():
                raise ConfigError(f"no PySpark {version}: make spark-chaos installs it")
        for number, combination in chosen:
            folder = (self.folder / f"run-{number}").resolve()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            self.watcher.say(f"Run {number}: {combination}")
            try:
                self.results.runs.append(await self._run(number, combination, folder))
            except (KafkaError, OSError, TimeoutError) as error:
                self.results.failed[str(combination)] = f"{type(error).__name__}: {error}"
                self.watcher.say(f"Run {number} failed: {error}")
            self.results.write(self.folder)
        self.results.complete = True
        self.results.write(self.folder)

    async def _run(self, number: int, combination: Combination, folder: Path) -> Run:
        features = {"transaction.version": combination.transaction_version}
        python = spark_python(combination.spark)
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(LocalCluster(BROKERS, features=features))
            self.results.machine = self.results.machine or machine_facts(kafka=cluster.version)
            admin = await stack.enter_async_context(Admin(cluster.bootstrap))
            for topic in (_SOURCE, _SINK):
                await admin.create_topic(
                    topic, self.plan.partitions, BROKERS, configs={"min.insync.replicas": "2"}
                )
            self.watcher.say("Starting Spark")
            sync = stack.enter_context(ExitStack())
            spark = standalone_spark(
                folder / "spark", memory="512m", python=str(python), home=pyspark_home(python)
            )
            master = await asyncio.to_thread(sync.enter_context, spark)
            driver = self._driver(cluster.bootstrap, combination, folder, master)
            sync.callback(driver.kill)
            return await self._copy(number, combination, cluster, admin, driver, folder)

    def _driver(
        self, bootstrap: str, combination: Combination, folder: Path, master: str
    ) -> Driver:
        servers = {"kafka.bootstrap.servers": bootstrap}
        once = str(combination.exactly_once).lower()
        adaptive = str(combination.adaptive == "on").lower()
        return Driver(
            spark_python(combination.spark),
            folder,
            master,
            {
                **_CONFIG,
                "spark.speculation": str(combination.speculation == "on").lower(),
                "spark.sql.adaptive.enabled": adaptive,
                "spark.sql.adaptive.streaming.stateless.enabled": adaptive,
            },
            {
                **servers,
                "subscribe": _SOURCE,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(self.plan.max_offsets),
            },
            {
                **servers,
                "topic": _SINK,
                "checkpointLocation": str(folder / "checkpoint"),
                "exactlyOnce": once,
                **({"transactionalIdPrefix": _PREFIX} if combination.exactly_once else {}),
            },
            connect=combination.session == "Connect",
        )

    async def _copy(
        self,
        number: int,
        combination: Combination,
        cluster: LocalCluster,
        admin: Admin,
        driver: Driver,
        folder: Path,
    ) -> Run:
        plan, checkpoint = self.plan, folder / "checkpoint"
        load = Load(
            *(cluster.bootstrap, _SOURCE),
            keys=plan.keys,
            partitions=plan.partitions,
            rate=plan.rate,
        )
        strikes = Strikes(
            cluster,
            admin,
            driver,
            (_SOURCE, _SINK),
            lambda: ledger_name(checkpoint, _PREFIX),
            plan.faults(number, combination),
            self.watcher.say,
        )
        sending = asyncio.create_task(load.run())
        try:
            await self._first_batch(driver)
            self.watcher.say(f"Striking for {plan.seconds:g} s")
            began = time.monotonic()
            async with strikes.supervised():
                await strikes.run()
                await asyncio.sleep(max(0.0, began + plan.seconds - time.monotonic()))
            healed = time.monotonic()
            load.stop()
            await sending
            await self._copy_the_rest(driver, strikes)
            drained_s = round(time.monotonic() - healed, 3)
        finally:
            load.stop()
            await asyncio.gather(sending, return_exceptions=True)
        left_open = await admin.list_transactions(_PREFIX, states=[TxnState.ONGOING])
        partitions = len((await admin.describe_topic(_SINK)).partitions)
        outcome = Outcome()
        await read_committed(cluster.bootstrap, _SINK, partitions, outcome.add)
        outcome.end(load.sent)
        batches = sum(each.name.isdigit() for each in (checkpoint / "commits").iterdir())
        return Run(
            number=number,
            combination=combination,
            seconds=plan.seconds,
            rows=load.sent.total(),
            missing=outcome.missing,
            repeated=outcome.repeated,
            reordered=outcome.reordered,
            unexpected=outcome.unexpected,
            left_open=len(left_open),
            batches=batches,
            driver_starts=driver.starts,
            drained_s=drained_s,
            examples=tuple(outcome.examples),
            ended=tuple(strikes.ended),
            struck=tuple(sorted(strikes.struck, key=lambda each: each.began)),
        )

    async def _first_batch(self, driver: Driver) -> None:
        self.watcher.say("Starting the query")
        await asyncio.to_thread(driver.start)
        async with asyncio.timeout(self.plan.start_timeout_s):
            while not driver.batches:
                if driver.status is not None:
                    raise KafkaError(f"the query did not start: {driver.last_words}")
                await asyncio.sleep(_LOOK_S)

    async def _copy_the_rest(self, driver: Driver, strikes: Strikes) -> None:
        """Let a last driver end with the source, after the others were killed."""
        self.watcher.say("The faults are over; copying the rest")
        async with asyncio.timeout(self.plan.drain_timeout_s):
            for _ in range(_LAST_ATTEMPTS):
                await asyncio.to_thread(driver.start, UNTIL_THE_END)
                while driver.status is None:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(_LOOK_S)
                if driver.status == 0:
                    return
                strikes.ended.append(f"after the faults: {driver.last_words}")
        raise KafkaError(f"the query did not end: {driver.last_words}")
