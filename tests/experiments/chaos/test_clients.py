from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiokafka
import pytest

import kafkaclient.aiokafka as drop_in
from experiments.chaos.clients import CLIENTS, make_client
from experiments.chaos.experiment import Experiment
from experiments.chaos.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path


class Cluster:
    proxied_bootstrap = "127.0.0.1:9"


@pytest.mark.parametrize("api", ["kafkaclient", "aiokafka"])
def test_the_api_decides_how_our_records_are_sent(tmp_path: Path, api: str) -> None:
    plan = Plan(seconds=10, seed=1, api=api, peers=("aiokafka",))
    experiment = Experiment(plan, tmp_path, watcher=None)  # type: ignore[arg-type]
    cluster: Any = Cluster()
    ours, peer = [experiment._worker(cluster, name).spec for name in plan.clients]
    assert ours.client == "kafkaclient", "its topics and results have the same names"
    assert ours.way == ("drop-in" if api == "aiokafka" else "kafkaclient")
    assert (peer.client, peer.way) == ("aiokafka", "aiokafka")


async def test_both_producers_with_aiokafkas_api_get_the_same_options() -> None:
    config = {"bootstrap.servers": "127.0.0.1:9", "client.id": "c"}
    made: list[Any] = [make_client(name, config) for name in ("drop-in", "aiokafka")]
    assert [client._module for client in made] == [drop_in, aiokafka]
    assert made[0]._options == made[1]._options
    assert made[0]._options["enable_idempotence"] is True
    assert {"drop-in", "aiokafka"} < set(CLIENTS)
