from __future__ import annotations

from itertools import pairwise

import pytest

from experiments.clients import OURS
from experiments.options import parse_peers
from experiments.slow_broker.settings import BASELINE, OBJECT_STORE, PEERS, SETTINGS, choose
from kafkaclient.errors import ConfigError


def test_our_default_has_no_option_at_all() -> None:
    (default,) = [setting for setting in SETTINGS[OURS] if setting.name == "default"]
    assert dict(default.options) == {}
    assert default.linger_ms == 5


def test_the_peers_settings_are_those_of_the_comparison() -> None:
    assert PEERS == ("java", "franz-go", "aiokafka", "confluent")
    java = {setting.name: dict(setting.options) for setting in SETTINGS["java"]}
    assert set(java) == {
        f"{mode} linger {linger}"
        for mode in ("adaptive", "uniform", "availability 5 ms")
        for linger in (0, 5, 10)
    }
    assert java["uniform linger 10"] == {
        "linger.ms": "10",
        "partitioner.adaptive.partitioning.enable": "false",
    }
    assert [setting.linger_ms for setting in SETTINGS["aiokafka"]] == [0, 5]
    assert [setting.linger_ms for setting in SETTINGS["confluent"]] == [0, 5, 10, 10]
    assert BASELINE.label == "java: adaptive linger 5"


def test_names_are_unique_and_every_mode_of_ours_is_there() -> None:
    for settings in SETTINGS.values():
        assert len({setting.name for setting in settings}) == len(settings)
    ours = {setting.name for setting in SETTINGS[OURS]}
    assert {"linger 0", "late floor 0 linger 0", "uniform", "sticky linger 0"} < ours
    assert sum(name.startswith("kip794") for name in ours) == 9


def test_each_client_meets_an_object_store_with_its_defaults_and_with_large_batches() -> None:
    assert OBJECT_STORE.keys() == SETTINGS.keys()
    for settings in OBJECT_STORE.values():
        default, large = settings[0], settings[-1]
        assert default.linger_ms == 5
        assert "batch.size" not in default.options
        assert large.linger_ms == 100
        assert large.options["batch.size"] == "1000000"
    chosen = choose(("java",), "large*", OBJECT_STORE)
    assert {setting.label for setting in chosen} == {
        "kafkaclient: large",
        "kafkaclient: large kip794",
        "java: adaptive linger 5",
        "java: large",
    }


@pytest.mark.parametrize("text", ["", " ", "none", ","])
def test_no_peers(text: str) -> None:
    assert parse_peers(text, PEERS) == ()


def test_peers_are_named_once_and_known() -> None:
    assert parse_peers("confluent, java,java", PEERS) == ("confluent", "java")
    with pytest.raises(ConfigError, match="no peer 'kafka-node'; there are java, franz-go"):
        parse_peers("java,kafka-node", PEERS)


def test_clients_take_turns() -> None:
    order = [setting.client for setting in choose(PEERS)]
    assert len(order) == sum(map(len, SETTINGS.values()))
    places = [place for place, name in enumerate(order) if name == "java"]
    assert max(b - a for a, b in pairwise(places)) <= 2 * len(order) / len(places)


def test_patterns_restrict_the_clients_they_speak_of() -> None:
    chosen = choose(("java", "aiokafka"), "default, kip794 adaptive*, java:adaptive linger 5")
    labels = {setting.label for setting in chosen}
    assert {label for label in labels if label.startswith("java")} == {BASELINE.label}
    assert sum(label.startswith("kafkaclient") for label in labels) == 4
    assert sum(label.startswith("aiokafka") for label in labels) == 2


def test_compared_is_one_setting_of_each_client_with_the_same_linger() -> None:
    chosen = choose(PEERS, "compared")
    assert {setting.linger_ms for setting in chosen} == {5.0}
    assert [setting.client for setting in chosen if setting.client != OURS] == list(PEERS)
    assert {setting.client for setting in choose(("java",), "compared")} == {OURS, "java"}
    assert len(choose((), "compared")) == 5


@pytest.mark.parametrize("pattern", ["defualt", "confluent:linger 0", "nobody:default"])
def test_a_pattern_that_chooses_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="nothing is named"):
        choose(("java",), pattern)
