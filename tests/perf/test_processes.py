"""Producers in processes: what fails there arrives here. A load that succeeds needs real brokers:
integration/test_perf_test.py."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.perf.load import LoadSpec
from kafkaclient.perf.run import Labels, ProducerPlan, run_in_processes, shares
from kafkaclient.perf.traffic import random_payloads


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def plans(records: Any) -> list[ProducerPlan]:
    config = {"client.id": "c", "bootstrap.servers": "b:1", "no.such.option": "1"}
    spec = LoadSpec(10)
    whole = ProducerPlan("kafkaclient", "topic", config, spec, Labels("default", 5.0), records)
    return shares(whole, 2)


def test_a_wrong_option_is_told_with_the_producers_number() -> None:
    with pytest.raises(ConfigError, match=r"producer 0: .*no\.such\.option"):
        run_in_processes(plans(partial(random_payloads, 10)))


def test_a_process_that_dies_ends_the_load() -> None:
    with pytest.raises(KafkaError, match="process was killed"):
        run_in_processes(plans(Deadly()))
