from __future__ import annotations

import json

import pytest

from experiments.chaos.plan import PEERS, Plan, parse_kinds
from experiments.chaos.schedule import FaultKind, schedule
from experiments.options import parse_peers
from kafkaclient.errors import ConfigError


def test_a_plan_says_what_will_be_done() -> None:
    plan = Plan(seconds=60, seed=7, brokers=5, peers=("confluent", "java"))
    assert plan.faults == schedule(7, 60, 5)
    assert plan.partitions == 10
    assert plan.clients == ("kafkaclient", "confluent", "java")
    assert plan.topics("confluent")["keyed"] == "chaos-confluent-keyed"
    assert plan.topics("java") == {"unkeyed": "chaos-java-unkeyed"}
    assert json.loads(json.dumps(plan.as_json()))["peers"] == ["confluent", "java"]


def test_an_outage_takes_the_place_of_the_schedule() -> None:
    (fault,) = Plan(seconds=60, seed=7, outage=30).faults
    assert (fault.kind, fault.at, fault.seconds) == (FaultKind.OUTAGE, 15, 30)


def test_encrypted_connections_have_no_faults_of_requests() -> None:
    plan = Plan(seconds=600, seed=7, kerberos=60)
    kinds = {fault.kind for fault in plan.faults}
    assert kinds == set(FaultKind) - {
        FaultKind.OUTAGE,
        FaultKind.CUT_BEFORE,
        FaultKind.CUT_AFTER,
        FaultKind.CORRUPT,
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"brokers": 2}, "--brokers must be at least 3"),
        ({"seconds": 0}, "--seconds must be more than 0"),
        ({"rate": -1}, "--rate must be more than 0"),
        ({"producers": 0}, "--producers must be more than 0"),
        ({"keys": 0}, "--keys must be more than 0"),
        ({"producers": 10_000}, "too many streams"),
        ({"api": "confluent"}, "--api must be one of kafkaclient, aiokafka, not confluent"),
        ({"record_size": 20}, "--record-size must be at least 32"),
        ({"outage": 60}, "--outage must be 0 or more and less than --seconds"),
        ({"kerberos": 5}, "--kerberos must be 0 or at least 6, not 5"),
        ({"kerberos": 60, "peers": ("java",)}, "goes with neither --peers nor --api"),
        ({"kerberos": 60, "api": "aiokafka"}, "goes with neither --peers nor --api"),
        ({"peers": ("java",), "kinds": ("keyed",)}, "needs unkeyed records"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Plan(**{"seconds": 60, "seed": 1, **wrong})  # type: ignore[arg-type]


def test_peers_and_kinds_are_named() -> None:
    assert parse_peers("none", PEERS) == parse_peers("", PEERS) == ()
    assert parse_peers("java, aiokafka,java", PEERS) == ("java", "aiokafka")
    assert parse_kinds("keyed") == ("keyed",)
    with pytest.raises(ConfigError, match=r"--peers: .* aiokafka, confluent, java"):
        parse_peers("kafka-python", PEERS)
    with pytest.raises(ConfigError, match="--kinds: unkeyed, keyed, explicit"):
        parse_kinds("")
