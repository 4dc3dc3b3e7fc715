"""``kafkaclient groups`` on the fake cluster."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin
from kafkaclient.cli.app import app
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.membership import GroupListing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Result]

METADATA = 3  # the API key
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def fake() -> FakeCluster:
    """Topic t with 10 and 4 records; group g has consumed 6 and 4."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    cluster.create_topic("other", 1)

    async def prepare() -> None:
        async with Producer(cluster.bootstrap, dialer=cluster) as producer:
            for where, count in ((T0, 10), (T1, 4)):
                times = [number * 1000 for number in range(count)]
                await producer.send_many(
                    "t", [b""] * count, partition=where.partition, timestamps_ms=times
                )
        async with Admin(cluster.bootstrap, dialer=cluster) as admin:
            await admin.alter_offsets("g", {T0: 6, T1: 4})

    asyncio.run(prepare())
    return cluster


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=fake, rng=Random(1)))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, ["groups", *words, "-b", fake.bootstrap])

    return invoke


def printed(run: Run, *words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def offsets(run: Run) -> list[int]:
    return [each["committed"] for each in printed(run, "describe", "g")["partitions"]]


def test_groups_are_listed_and_described(run: Run) -> None:
    assert printed(run, "list") == [{"group": "g", "state": "Empty", "kind": "classic"}]
    found = printed(run, "describe", "g")
    assert (found["state"], found["kind"], found["members"]) == ("Empty", "classic", [])
    assert [(each["committed"], each["end"], each["lag"]) for each in found["partitions"]] == [
        (6, 10, 4),
        (4, 4, 0),
    ]
    assert printed(run, "lag", "g") == [{"group": "g", "topic": "t", "partitions": 2, "lag": 4}]
    for words in (["list"], ["describe", "g"], ["lag", "g"]):
        assert "g" in run(*words).stdout
    missing = run("describe", "nobody")
    assert missing.exit_code == 1
    assert "group nobody: GROUP_ID_NOT_FOUND" in missing.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [10, 4]),
        (["--to", "-3"], [7, 1]),
        (["--to", "5"], [5, 4]),
        (["--to", "@2500"], [3, 3]),
        (["--to", "+2"], [8, 4]),
        (["--to", "2-"], [4, 2]),
        (["--to", "earliest", "--topic", "t:1"], [6, 0]),
    ],
)
def test_offsets_are_set_when_it_is_said(run: Run, words: list[str], expected: list[int]) -> None:
    plan = run("reset-offsets", "g", *words)
    assert plan.exit_code == 0
    assert "nothing was changed" in plan.stderr
    assert offsets(run) == [6, 4]
    done = printed(run, "reset-offsets", "g", *words, "--execute")
    assert done["done"] is True
    assert offsets(run) == expected


def test_offsets_are_kept_in_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(run("describe", "g", "--json").stdout)
    run("reset-offsets", "g", "--to", "earliest", "--execute")
    assert run("reset-offsets", "g", "--from-file", str(file), "--execute").exit_code == 0
    assert offsets(run) == [6, 4]
    file.write_text("[]")
    wrong = run("reset-offsets", "g", "--from-file", str(file), "--execute")
    assert wrong.exit_code == 2
    assert "has no offsets" in wrong.stderr


def test_a_new_group_gets_offsets_of_a_topic(run: Run) -> None:
    words = ("reset-offsets", "new", "--to", "latest", "--topic", "t", "--execute")
    assert run(*words).exit_code == 1
    assert run(*words, "--create").exit_code == 0
    assert printed(run, "lag", "new")[0]["lag"] == 0


def test_a_group_that_is_not_there_is_no_new_one(run: Run) -> None:
    assert run("reset-offsets", "billing", "--to", "0", "-t", "t", "--create", "--execute")
    for words in (["--to", "0"], ["--to", "0", "--topic", "t", "--execute"]):
        refused = run("reset-offsets", "bilinng", *words)
        told = "there is no such group; did you mean billing? (--create with --topic makes it)"
        assert (refused.exit_code, told in refused.stderr) == (1, True)
    assert {each["group"] for each in printed(run, "list")} == {"g", "billing"}
    assert "did you mean billing?\n" in run("remove-members", "bilinng", "--yes").stderr


def test_partitions_that_have_no_place_are_named(run: Run, tmp_path: Path) -> None:
    result = run("reset-offsets", "g", "--to", "+1", "--topic", "t", "--topic", "other")
    assert "left out: other-0: nothing is committed, and --to +1 counts from there" in result.stderr
    file = tmp_path / "offsets.json"
    gone = {"topic": "gone", "partition": 0, "committed": 1}
    file.write_text(json.dumps({"partitions": [gone]}))
    result = run("reset-offsets", "g", "--from-file", str(file))
    assert "left out: gone-0: its topic is deleted" in result.stderr
    assert result.exit_code == 1


def test_partitions_without_a_leader_are_named(run: Run, fake: FakeCluster) -> None:
    """Partition 1 is on the broker that ends."""
    fake.stop_broker(1)
    result = run("lag", "g")
    assert "no leader, and so no lag is known: t-1\n" in result.stderr
    assert result.exit_code == 0
    assert printed(run, "lag", "g") == [{"group": "g", "topic": "t", "partitions": 2, "lag": 4}]
    assert "no leader" in run("describe", "g").stdout
    result = run("reset-offsets", "g", "--to", "0", "--execute")
    assert result.exit_code == 1
    assert "left out: t-1: it has no leader" in result.stderr
    assert offsets(run) == [0, 4]


def test_lag_asks_for_the_topics_of_the_group_only(run: Run, fake: FakeCluster) -> None:
    before = len(fake.requests_of(METADATA))
    assert run("lag", "g").exit_code == 0
    asked = [request.message.topics for request in fake.requests_of(METADATA)[before:]]
    assert asked
    assert all(topics is not None and {t.name for t in topics} <= {"t"} for topics in asked)


def test_without_a_group_lag_shows_all_of_them_the_most_first(run: Run) -> None:
    for group, where in (("a", "8"), ("z", "0")):
        run("reset-offsets", group, "--to", where, "--topic", "t:0", "--create", "--execute")
    found = [(each["group"], each["lag"]) for each in printed(run, "lag")]
    assert found == [("z", 10), ("g", 4), ("a", 2)]


def test_a_group_whose_lag_cannot_be_read_leaves_the_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(_admin: Admin) -> list[GroupListing]:
        names = (("gone", "classic"), ("g", "classic"), ("s", "Share"))
        return [GroupListing(name, "", "", kind) for name, kind in names]

    monkeypatch.setattr(Admin, "list_groups", listed)
    result = run("lag", "--json")
    assert [each["group"] for each in json.loads(result.stdout)] == ["g"]
    assert "group gone: GROUP_ID_NOT_FOUND" in result.stderr
    assert "group s" not in result.stderr


def test_offsets_and_groups_are_deleted(run: Run) -> None:
    assert run("delete-offsets", "g", "--topic", "t:1", "--yes").exit_code == 0
    assert offsets(run) == [6]
    asked = run("delete", "g")
    assert (asked.exit_code, "Delete 1 group with their offsets?" in asked.stderr) == (2, True)
    assert printed(run, "delete", "g", "--yes") == {"deleted": ["g"], "failed": {}}
    again = run("delete", "g", "--yes")
    assert again.exit_code == 1
    assert "GROUP_ID_NOT_FOUND" in again.stderr


def test_a_group_with_members(run: Run, fake: FakeCluster) -> None:
    """A static member stays when its consumer ends."""
    options: dict[str, Any] = {"group_instance_id": "worker", "group_protocol": "classic"}

    async def join() -> None:
        consumer = Consumer(fake.bootstrap, topics=["t"], group_id="g", dialer=fake, **options)
        async with consumer:
            await consumer.wait_assigned()

    asyncio.run(join())
    (member,) = printed(run, "describe", "g")["members"]
    assert member["group_instance_id"] == "worker"
    assert member["partitions"] == [T0._asdict(), T1._asdict()]
    assert "worker" in run("describe", "g").stdout
    refused = run("reset-offsets", "g", "--to", "0", "--execute")
    assert refused.exit_code == 1
    assert "it has 1 member: stop them first; nothing was changed" in refused.stderr
    assert run("delete-offsets", "g", "--topic", "t", "--yes").exit_code == 1
    wrong = run("remove-members", "g", "--member", "x", "--yes")
    assert "has no member x" in wrong.stderr
    removed = printed(run, "remove-members", "g", "--member", "worker", "--yes")
    assert removed["removed"] == ["worker"]
    assert run("reset-offsets", "g", "--to", "0", "--execute").exit_code == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["reset-offsets", "g"], "--to and --from-file"),
        (
            ["reset-offsets", "nobody", "--to", "0", "--create"],
            "group nobody has committed nothing",
        ),
        (["reset-offsets", "g", "--to", "soon"], "--to 'soon' is none of"),
        (["reset-offsets", "g", "--to", "+x"], "+N or N-"),
        (["reset-offsets", "g", "--to", "0", "--topic", "t:9"], "there is no partition 9"),
        (["reset-offsets", "g", "--to", "0", "--topic", "t:x"], "give TOPIC or TOPIC:0,1"),
        (["delete-offsets", "g"], "give --topic"),
        (["delete-offsets", "g", "--topic", "other", "--yes"], "no committed offsets of other"),
    ],
)
def test_wrong_use_is_told(run: Run, words: list[str], reason: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert reason in result.stderr
