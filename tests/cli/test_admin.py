"""``kafkaclient topics``, ``configs``, ``limits`` and ``cluster describe`` on the fake cluster."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from kafkaclient.admin import Admin
from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.cli.app import app
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.cli.test_connection import ALL, COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from kafkaclient.testing.fake import Request

    Run = Callable[..., Result]


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(3, partitions=2, racks=["a", "b", "c"])
    return cluster


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the fake; its output in a wide terminal."""

    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=fake, rng=Random(1)))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--bootstrap-server", fake.bootstrap])

    return invoke


def made(run: Run, *words: str) -> None:
    result = run("topics", "create", *words)
    assert result.exit_code == 0, result.stderr


def test_topics_from_creation_to_deletion(run: Run) -> None:
    made(run, "t", "--partitions", "3", "--replication-factor", "2")
    again = run("topics", "create", "t")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "TOPIC_ALREADY_EXISTS" in again.stderr
    assert run("topics", "create", "t", "--if-not-exists").exit_code == 0
    grown = run("topics", "add-partitions", "t", "--partitions", "5")
    assert "topic t has 5 partitions" in grown.stderr
    assert run("topics", "list").stdout == "t\n"
    assert json.loads(run("topics", "list", "--json").stdout) == ["t"]
    missing = run("topics", "list", "t", "u")
    assert (missing.exit_code, "there is no such topic" in missing.stderr) == (1, True)
    unasked = run("topics", "delete", "t")
    assert unasked.exit_code == 2
    assert "5 partitions and all their records" in unasked.stderr
    assert "--yes" in unasked.stderr
    deleted = run("topics", "delete", "t", "--yes", "--json")
    assert json.loads(deleted.stdout) == {"deleted": ["t"], "failed": {}}
    assert run("topics", "delete", "t", "--yes").exit_code == 1
    assert run("topics", "delete", "t", "--if-exists", "--force").exit_code == 0


def test_deleting_by_a_pattern_spares_kafkas_own_topics(run: Run, fake: FakeCluster) -> None:
    for name in ("__consumer_offsets", "a1", "a2", "b"):
        fake.create_topic(name, 1)
    assert run("limits", "set", "max.partitions=99").exit_code == 0
    kept = ["__consumer_offsets", LIMITS_TOPIC]
    assert run("topics", "delete", "--pattern", "a.", "--yes").exit_code == 0
    assert run("topics", "list").stdout.split() == [*kept, "b"]
    assert run("topics", "list", "--pattern", "__.*").stdout.split() == kept
    assert run("topics", "delete", "--pattern", ".*", "--yes").exit_code == 0
    assert run("topics", "list").stdout.split() == kept
    assert run("topics", "list", "--exclude-internal").stdout.split() == [LIMITS_TOPIC]
    none = run("topics", "delete", "--pattern", "a.", "--yes")
    assert (none.exit_code, "--pattern a." in none.stderr) == (1, True)
    assert run("topics", "delete", "--pattern", "a.", "--if-exists").exit_code == 0
    for spared in kept:
        refused = run("topics", "delete", "--pattern", spared, "--yes")
        assert (refused.exit_code, "own topics are left out" in refused.stderr) == (1, True)
    words = ("topics", "describe", "--pattern", "__consumer_.*", "--exclude-internal")
    assert (run(*words).exit_code, run(*words, "--if-exists").exit_code) == (1, 0)
    assert run("topics", "delete", LIMITS_TOPIC, "--yes").exit_code == 0


NAMING = {name: words for name, words in COMMANDS.items() if "t" in words and "g" not in words} | {
    "topics list": ("t",),
    "topics describe": ("t",),
    "topics add-partitions": ("t", "--partitions", "9"),
    "reassign generate": ("t", "--broker-list", "2"),
}
for name in ("perf-test", "produce", "consume"):
    NAMING.pop(name, None)


@pytest.mark.parametrize("name", NAMING)
def test_a_name_is_never_taken_as_a_pattern(name: str, run: Run, fake: FakeCluster) -> None:
    """Not even if no topic has the name, and another topic matches it."""
    fake.create_topic("raw-orders", assignments=[(0,)])
    words = [*name.split(), *("raw.orders" if word == "t" else word for word in NAMING[name])]
    for _ in range(2):
        assert "raw-orders" not in run(*words).output
    if any("--if-exists" in parameter.opts for parameter in ALL[name].params):
        assert run(*words).exit_code == 1
        assert run(*words, "--if-exists").exit_code == 0
    other = inspect(fake).topics["raw-orders"]
    assert (other.configs, [p.replicas for p in other.partitions]) == ({}, [[0]])


@pytest.mark.parametrize("command", ["list", "describe", "delete"])
def test_names_and_patterns_are_told_apart(command: str, run: Run) -> None:
    pattern = run("topics", command, "raw.*")
    assert (pattern.exit_code, "given as --pattern" in pattern.stderr) == (2, True)
    both = run("topics", command, "a", "--pattern", "a")
    assert (both.exit_code, "give one of them" in both.stderr) == (2, True)
    assert run("topics", command, "--pattern", "(").exit_code == 2
    if command == "delete":
        assert run("topics", "delete", "--yes").exit_code == 2


def test_a_topic_that_vanishes_or_is_denied_hides_no_other(run: Run, fake: FakeCluster) -> None:
    for name in ("a", "b", "c"):
        fake.create_topic(name, 1)
    codes = {"a": 0, "b": 3, "c": 29}

    def configs(request: Request) -> dict[str, Any]:
        asked = [each.resource_name for each in request.message.resources]
        return {
            "results": [
                {"resource_type": 2, "resource_name": name, "error_code": codes[name]}
                for name in asked
            ]
        }

    fake.control(ApiKey.DESCRIBE_CONFIGS, configs, keep=True)
    shown = run("topics", "describe", "--json")
    told = {each["topic"]: each["configs"] for each in json.loads(shown.stdout)}
    assert (shown.exit_code, told) == (1, {"a": {}, "c": None})
    assert "DescribeConfigs" in shown.stderr
    requests = [r for r in fake.requests if r.frame.api_key == ApiKey.DESCRIBE_CONFIGS]
    assert len(requests) == 1
    assert run("topics", "describe", "b").exit_code == 1
    assert run("topics", "describe", "b", "--if-exists").exit_code == 0


def test_a_topic_that_is_deleted_by_somebody_else_meanwhile(run: Run, fake: FakeCluster) -> None:
    for words, status in (((), 1), (("--if-exists",), 0)):
        fake.create_topic("t", 1)
        fake.control(ApiKey.DELETE_TOPICS, 3)
        assert run("topics", "delete", "t", "--yes", *words).exit_code == status
        fake.delete_topic("t")


def test_a_topic_described(run: Run, fake: FakeCluster) -> None:
    made(run, "t", "--replica-assignment", "0:1,1:2", "--config", "retention.ms=5")
    table = run("topics", "describe", "t").stdout
    assert "t: 2 partitions, replication factor 2, retention.ms=5" in table
    told = json.loads(run("topics", "describe", "--json").stdout)
    assert told[0]["configs"] == {"retention.ms": "5"}
    assert [p["replicas"] for p in told[0]["partitions"]] == [[0, 1], [1, 2]]
    assert run("topics", "describe", "--under-replicated-partitions").stdout == ""
    fake.stop_broker(2)
    fake.move_leader("t", 0, -1)
    behind = json.loads(run("topics", "describe", "--under-replicated-partitions", "--json").stdout)
    assert [p["partition"] for p in behind[0]["partitions"]] == [1]
    leaderless = run("topics", "describe", "--unavailable-partitions").stdout
    assert "no leader" in leaderless
    assert "behind" not in leaderless
    assert "down: 2" in run("topics", "describe").stdout
    fake.start_broker(2)
    fake.set_isr("t", 1, [1])
    assert "behind: 2" in run("topics", "describe").stdout
    assert run("topics", "describe", "nothing").exit_code == 1
    assert run("topics", "describe", "nothing", "--if-exists").exit_code == 0


def test_partitions_with_few_replicas_in_sync(run: Run, fake: FakeCluster) -> None:
    placed = ("--replica-assignment", "0:1,1:2", "--config", "min.insync.replicas=2")
    made(run, "t", *placed)
    made(run, "u", "--replica-assignment", "0:1", "--config", "min.insync.replicas=1")

    def shown(flag: str) -> list[tuple[str, int]]:
        told = json.loads(run("topics", "describe", flag, "--json").stdout)
        return [(each["topic"], p["partition"]) for each in told for p in each["partitions"]]

    assert shown("--under-min-isr-partitions") == []
    assert shown("--at-min-isr-partitions") == [("t", 0), ("t", 1)]
    fake.stop_broker(2)
    assert shown("--under-min-isr-partitions") == [("t", 1)]
    assert shown("--at-min-isr-partitions") == [("t", 0)]


def test_a_name_that_no_topic_can_have(run: Run) -> None:
    for words in (("create",), ("add-partitions", "--partitions", "3")):
        refused = run("topics", *words, "b d")
        assert refused.exit_code == 2
        assert "no topic can be named 'b d'" in refused.stderr


def test_replicas_by_hand_and_numbers_do_not_go_together(run: Run) -> None:
    both = run("topics", "create", "t", "--replica-assignment", "0", "--partitions", "1")
    assert both.exit_code == 2
    assert "leave out" in both.stderr
    wrong = run("topics", "create", "t", "--replica-assignment", "0:x")
    assert wrong.exit_code == 2
    assert "0:1:2,1:2:0" in wrong.stderr


def test_brokers_have_to_be_named(fake: FakeCluster) -> None:
    result = CliRunner().invoke(app, ["topics", "list"])
    assert result.exit_code == 2
    assert "--bootstrap-server" in result.stderr


def test_options_from_a_file(run: Run, fake: FakeCluster, tmp_path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("key.serializer=org.apache.X\nclient.id=me\nlinger.ms=9\n")
    assert run("topics", "list", "--command-config", str(file)).exit_code == 0
    assert fake.requests[-1].frame.client_id == "me"
    file.write_text("client.ids=me\n")
    wrong = run("topics", "list", "--command-config", str(file))
    assert wrong.exit_code == 2
    assert "did you mean client.id" in wrong.stderr


def test_settings(run: Run) -> None:
    made(run, "t")
    changed = run(
        *("configs", "alter", "t"),
        *("--add-config", "cleanup.policy=[compact,delete],retention.ms=7"),
    )
    assert changed.exit_code == 0
    own = json.loads(run("configs", "describe", "t", "--json").stdout)
    assert {name: entry["value"] for name, entry in own.items()} == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "7",
    }
    assert run("configs", "alter", "t", "--delete-config", "retention.ms").exit_code == 0
    everything = run("configs", "describe", "t", "--all").stdout
    assert "604800000" in everything
    assert "compact,delete" in everything
    for unknown in ("retention.ms,retention.mss", "nosuch"):
        wrong = run("configs", "alter", "t", "--delete-config", unknown)
        assert (wrong.exit_code, wrong.stdout) == (2, "")
        said = wrong.stderr.replace("\n", " ")
        assert "no such key in the configuration of topic 't'; nothing was changed" in said
    bare = run("configs", "alter", "t", "--add-config", "cleanup.policy=compact,delete")
    assert bare.exit_code == 2
    assert "cleanup.policy=[compact,delete]" in bare.stderr
    assert run("configs", "describe", "--broker", "1").exit_code == 0
    assert run("configs", "describe", "--broker", "9").exit_code == 2
    assert run("configs", "describe").exit_code == 2
    assert run("configs", "describe", "t", "--broker", "1").exit_code == 2


def test_preferred_leaders_are_elected(run: Run, fake: FakeCluster) -> None:
    fake.create_topic("t", assignments=[(0, 1), (1, 0), (2, 1)])
    assert "nothing was done" in run("topics", "elect-leaders", "t").stderr
    fake.move_leader("t", 0, 1)
    fake.move_leader("t", 1, 0)
    fake.stop_broker(1)
    found = run("topics", "elect-leaders", "--pattern", "t", "--json")
    assert found.exit_code == 1, "broker 1 is down"
    told = json.loads(found.stdout)
    assert (
        told["elected"] == [{"topic": "t", "partition": 0, "before": 0, "leader": 0}]
        or not told["elected"]
    )
    assert list(told["failed"]) == ["t-1"]
    fake.start_broker(1)
    shown = run("topics", "elect-leaders", "--all", "--json")
    assert json.loads(shown.stdout)["elected"] == [
        {"topic": "t", "partition": 1, "before": 0, "leader": 1}
    ]


def test_an_unclean_election_is_asked_for(run: Run, fake: FakeCluster) -> None:
    fake.create_topic("t", assignments=[(0, 1)])
    fake.set_isr("t", 0, [0])
    fake.stop_broker(0)
    refused = run("topics", "elect-leaders", "t", "--unclean")
    assert (refused.exit_code, "Nothing was done" in refused.stderr) == (2, True)
    found = run("topics", "elect-leaders", "t", "--unclean", "--yes", "--json")
    assert json.loads(found.stdout)["elected"] == [
        {"topic": "t", "partition": 0, "before": None, "leader": None}
    ]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("topics --list", "topics list"),
        ("topics --describe --topic t", "topics describe"),
        ("topics describe --topic t", "topics describe [OPTIONS] [TOPIC]..."),
        ("groups --describe --group g", "groups describe"),
        ("groups lag --group g", "groups lag [OPTIONS]"),
        ("configs describe --entity-type topics", "Here: TOPIC, --broker ID"),
        ("topic list", "Did you mean 'topics'?"),
        ("kafka-console-producer.sh --topic t", "Did you mean 'produce'?"),
        ("kafka-leader-election", "Did you mean 'topics elect-leaders'?"),
        ("topics lst", "Did you mean 'list'?"),
        ("topics ls", "Did you mean 'list'?"),
        ("topics elect", "Did you mean 'elect-leaders'?"),
        ("topics alter t", "Did you mean 'topics add-partitions' or 'configs alter'?"),
        ("groups seek g", "Did you mean 'groups reset-offsets'?"),
        ("consumer-groups --list", "Did you mean 'groups'?"),
        ("users list", "use kafka-acls and kafka-configs"),
        ("topics --alter", "Here: kafkaclient topics add-partitions, or configs alter"),
        ("consume t --from-beginning", "Here: consume begins there"),
        ("groups reset-offsets g --to-earliest", "Here: --to earliest"),
        ("throttle set --throttle 5MB", "give a whole number"),
        ("topics list --timeout x", "give a number"),
        ("-C -t t", "Here: kafkaclient consume TOPIC"),
    ],
)
def test_kafkas_spellings_are_answered_with_ours(run: Run, line: str, advice: str) -> None:
    found = run(*line.split())
    assert found.exit_code == 2
    assert advice in " ".join(found.stderr.replace("\u2502", " ").split())


@pytest.mark.parametrize("line", ["nothing", "topics --nothing", "topics describe --nothing"])
def test_what_is_nobodys_spelling_gets_no_advice(run: Run, line: str) -> None:
    found = run(*line.split())
    assert found.exit_code == 2
    assert "dashes" not in found.stderr
    assert "Did you mean" not in found.stderr


def test_limits_set_shown_checked(run: Run, fake: FakeCluster) -> None:
    assert "off" in run("limits", "show").stdout
    assert run("limits", "check").exit_code == 0
    assert run("limits", "set", "max.broker.partitions=3", "max.partitions=10").exit_code == 0
    assert json.loads(run("limits", "show", "--json").stdout) == {
        "max.broker.partitions": 3,
        "max.partitions": 10,
        "max.partitions.count": "partitions",
    }
    made(run, "t", "--partitions", "3", "--replication-factor", "2")
    assert run("limits", "check", "--warn-at", "70").exit_code == 0
    near = run("limits", "check", "--warn-at", "60", "--json")
    assert near.exit_code == 3
    told = json.loads(near.stdout)
    assert not told["ok"]
    shown = run("limits", "check", "--warn-at", "60")
    assert "above 60 %: broker 0 has 2 of max.broker.partitions=3" in shown.stderr
    assert len(told["above"]) == 3
    assert [broker["headroom"] for broker in told["brokers"]] == [1, 1, 1]
    refused = run("topics", "create", "u", "--partitions", "2", "--replication-factor", "2")
    assert refused.exit_code == 3
    assert "broker 0: 1, broker 1: 1, broker 2: 1; cluster: 7" in refused.stderr.replace("\n", "")
    free = ("--partitions", "2", "--replication-factor", "2", "--ignore-limits")
    made(run, "u", *free)
    over = run("limits", "check")
    assert over.exit_code == 3
    assert "max.broker.partitions=3" in over.stderr
    assert "133%" in over.stdout
    assert run("limits", "set", "max.broker.partition=3").exit_code == 2
    assert run("limits", "set", "max.broker.partitions").exit_code == 2
    empty = run("limits", "set", "max.partitions=")
    assert (empty.exit_code, "max.partitions=off switches the limit off" in empty.stderr) == (
        2,
        True,
    )


def test_limits_in_a_file(run: Run, tmp_path) -> None:
    file = ("--limits-file", str(tmp_path / "limits"))
    missing = run("topics", "create", "t", *file)
    assert missing.exit_code == 2
    assert "limits set --limits-file" in missing.stderr.replace("\n", " ")
    nowhere = run("limits", "set", "max.partitions=1", "--limits-file", "/nowhere/limits")
    assert nowhere.exit_code == 2
    said = " ".join(nowhere.stderr.replace("│", " ").split())
    assert "there is no directory /nowhere; create it" in said
    assert run("limits", "set", "max.partitions=1", *file).exit_code == 0
    assert run("topics", "create", "t", *file).exit_code == 3
    assert run("topics", "create", "t", *file, "--ignore-limits").exit_code == 2
    made(run, "t", "--partitions", "1", *file)
    grown = run("topics", "add-partitions", "t", "--partitions", "2", *file)
    assert grown.exit_code == 3


def test_the_cluster_described(run: Run, fake: FakeCluster) -> None:
    fake.create_topic("t", 4, 2)
    told = json.loads(run("cluster", "describe", "--json").stdout)
    assert told["cluster_id"] == "fake-cluster"
    assert [broker["rack"] for broker in told["brokers"]] == ["a", "b", "c"]
    fake.stop_broker(2)
    table = run("cluster", "describe").stdout
    assert "1 topics, 4 partitions" in table
    rows = [line.split() for line in table.replace("│", "").splitlines()]
    assert ["2", "down", "yes", "0", "2"] in rows


def test_the_controllers_are_not_known_without_the_right(run: Run, fake: FakeCluster) -> None:
    """This is not the same as a cluster with ZooKeeper, which has no quorum."""
    fake.control(ApiKey.DESCRIBE_QUORUM, 31, keep=True)
    shown = run("cluster", "describe")
    assert (shown.exit_code, "fake-2" in shown.stdout) == (0, True)
    assert "the controllers are not known" in shown.stderr
    assert "--operation Describe --cluster" in shown.stderr.replace("\n", " ")
    told = json.loads(run("cluster", "describe", "--json").stdout)
    assert (told["controllers"], told["controller_id"]) == (None, -1)
