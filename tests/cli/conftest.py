"""A client for the load loop that acknowledges everything at the loop's next turn."""

from __future__ import annotations

import asyncio
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from kafkaclient.errors import BootstrapError, TransactionAbortableError
from kafkaclient.metrics.snapshot import MetricsSnapshot
from kafkaclient.perf import clients
from kafkaclient.perf.traffic import (
    BrokerTraffic,
    Completed,
    PartitionTraffic,
    Traffic,
    unheard,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from click.testing import Result

    from kafkaclient.perf.traffic import KeyValue


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of ``profiles.toml``; the environment names no cluster."""
    for name in ("KAFKACLIENT_BOOTSTRAP", "KAFKACLIENT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "config"
    monkeypatch.setattr(typer, "get_app_dir", lambda _name: str(folder))
    folder.mkdir()
    return folder


class InstantClient:
    """Fails every seventh record when asked to by ``client.id=failing``."""

    name = "instant"
    values: list[bytes]
    configs: list[Mapping[str, str]]
    transactions: list[str]

    def __init__(self, config: Mapping[str, str], topic: str) -> None:
        self.configs.append(config)
        self._failing = config["client.id"] == "failing"
        self._unreachable = config["bootstrap.servers"] == "nowhere:1"
        self._taken = 0
        self._pending = 0
        self._completed: Completed = unheard

    async def start(self, completed: Completed) -> None:
        if self._unreachable:
            raise BootstrapError("none of nowhere:1 could be reached")
        self._completed = completed

    async def send(self, records: list[KeyValue], started: float) -> int:
        for _key, value in records:
            self.values.append(value)
            self._taken += 1
            self._pending += 1
            failed = self._failing and self._taken % 7 == 0
            error = TimeoutError("too late") if failed else None
            asyncio.get_running_loop().call_soon(self._answer, started, len(value), error)
        return len(records)

    async def begin_transaction(self) -> None:
        self.transactions.append("begin")

    async def commit_transaction(self) -> None:
        self.transactions.append("commit")
        if self._failing:
            raise TransactionAbortableError("a record has failed")

    async def flush(self) -> None:
        while self._pending:
            await asyncio.sleep(0)

    async def stop(self, timeout: float | None = None) -> None: ...

    def traffic(self) -> Traffic | None:
        return Traffic(
            (
                BrokerTraffic(0, 1000, 4),
                BrokerTraffic(1, 3000, 6, window=5, latency_s=0.0125, exclusions=17),
            ),
            (PartitionTraffic(0, 0, 10, 1000), PartitionTraffic(1, 1, 30, 3000, 1234)),
            skew=1.5,
        )

    def metrics(self) -> MetricsSnapshot:
        return MetricsSnapshot({"record-send-total": 7.0, "waiting-threads": 0}, {}, {}, {}, {}, {})

    def _answer(self, started: float, nbytes: int, error: BaseException | None) -> None:
        self._pending -= 1
        self._completed(started, perf_counter(), 1, nbytes, error)


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> type[InstantClient]:
    """``--producer instant``; the class remembers values and configs."""
    InstantClient.values, InstantClient.configs, InstantClient.transactions = [], [], []
    monkeypatch.setitem(clients.CLIENTS, "instant", InstantClient)  # type: ignore[arg-type]

    async def reachable(_options: Mapping[str, str], _timeout_s: float | None) -> None:
        """The client has no cluster."""

    for name in ("perf_test", "perf_report"):
        monkeypatch.setattr(import_module(f"kafkaclient.cli.{name}"), "check_reachable", reachable)
    return InstantClient


@pytest.fixture
def perf_test(instant: type[InstantClient]) -> Callable[..., Result]:
    """Run ``perf-test --producer instant`` with 100 records for a topic, and further words."""
    from kafkaclient.cli.app import app  # noqa: PLC0415 - not before the fixture is wanted

    def run(*words: str) -> Result:
        given = ["perf-test", "--producer", "instant", *words]
        for flag, value in {
            "--topic": "flights",
            "--num-records": "100",
            "--throughput": "-1",
            "--bootstrap-server": "127.0.0.1:9092",
        }.items():
            if flag not in words and f"no{flag}" not in words:
                given += [flag, value]
        return CliRunner().invoke(app, [word for word in given if not word.startswith("no--")])

    return run
