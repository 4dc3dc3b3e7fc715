"""``kafkaclient streams describe`` on the fake cluster."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kafkaclient.admin import Admin
from kafkaclient.cli.app import app
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey
from tests.streams.test_description import TASKS, A, B, answer_with, group

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    Run = Callable[..., Result]


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(3, partitions=2)
    cluster.set_versions(ApiKey.DESCRIBE_GROUPS, 0, 6)
    return cluster


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=fake, rng=Random(1)))

    async def topics() -> None:
        async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
            await admin.create_topic("in", 2)
            await admin.create_topic("app-s-changelog", 2)

    asyncio.run(topics())

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(
            app, ["streams", "describe", "app", *words, "--bootstrap-server", fake.bootstrap]
        )

    return invoke


def test_a_task_on_its_way(fake: FakeCluster, run: Run) -> None:
    answer_with(fake, group({A: dict.fromkeys(TASKS, -2), B: {}}))
    shown = run()
    assert shown.exit_code == 0, shown.stderr
    row = next(line for line in shown.stdout.splitlines() if "warm-up" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        str(B),
        "/h",
        "0_1",
        "warm-up",
        "0",
        "100%",
        "app-s-changelog-1",
    ]
    assert "not balanced: 1 tasks warm up" in shown.stdout
    checked = run("--check", "--json")
    assert checked.exit_code == 3
    told = json.loads(checked.stdout)
    assert (told["group"], told["state"], told["balanced"]) == ("app", "Stable", False)
    assert [task["role"] for task in told["members"][0]["tasks"]] == ["active", "active"]
    assert told["members"][1]["process_id"] == str(B)
    assert told["members"][1]["tasks"] == [
        {
            "task": "0_1",
            "role": "warm-up",
            "partitions": ["app-s-changelog-1"],
            "position": None,
            "end": 0,
            "lag": 0,
            "progress": 1.0,
        }
    ]


def test_balanced(fake: FakeCluster, run: Run) -> None:
    answer_with(fake, group({A: {TASKS[0]: -2}, B: {TASKS[1]: -2}}))
    shown = run("--check")
    assert shown.exit_code == 0
    assert "balanced: no task is to move" in shown.stdout


def test_a_partition_whose_task_is_active_nowhere(fake: FakeCluster, run: Run) -> None:
    """A member with both tasks, and one of them was withheld or lost."""
    found = group({A: dict.fromkeys(TASKS, -2), B: {}})
    fewer = [each for each in found.members if each.member_id == "member-2"]
    answer_with(fake, found._replace(members=(*fewer,)))
    shown = run("--check", "--wait", "0")
    assert shown.exit_code == 3
    assert "active nowhere: the tasks of in-0, in-1" in shown.stdout
    told = json.loads(run("--wait", "0", "--json").stdout)
    assert (told["unassigned"], told["balanced"]) == (["in-0", "in-1"], False)


def test_a_member_with_nothing_to_do(fake: FakeCluster, run: Run) -> None:
    third = group({A: {TASKS[0]: -2}, B: {TASKS[1]: -2}, type(A)(int=3): {}})
    answer_with(fake, third)
    assert "nothing" in run().stdout


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("Empty", "no instance is running"),
        ("Dead", "there is no such group"),
        ("PreparingRebalance", "the group is rebalancing"),
    ],
)
def test_nobody_is_there(fake: FakeCluster, run: Run, state: str, told: str) -> None:
    answer_with(fake, group({A: {}})._replace(state=state))
    shown = run("--wait", "0")
    assert shown.exit_code == 1
    assert told in shown.stdout
    told_json = json.loads(run("--wait", "0", "--json").stdout)
    assert (told_json["members"], told_json["balanced"]) == ([], False)


@pytest.mark.parametrize(
    ("kind", "told"), [("consumer", "plain consumers (KIP-848)"), ("streams", "KIP-1071")]
)
def test_a_group_of_another_protocol(fake: FakeCluster, run: Run, kind: str, told: str) -> None:
    answer_with(fake, group({A: {}})._replace(state="Dead", members=(), protocol=""))
    fields = {"group_id": "app", "protocol_type": kind, "group_state": "Stable", "group_type": kind}
    fake.set_versions(ApiKey.LIST_GROUPS, 0, 5)
    fake.control(ApiKey.LIST_GROUPS, lambda _request: {"groups": [fields]}, keep=True)
    shown = run()
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"group 'app' has the {kind} protocol" in shown.stderr
    assert told in shown.stderr


def test_another_kind_of_group(fake: FakeCluster, run: Run) -> None:
    answer_with(fake, group({A: {}})._replace(protocol="range"))
    shown = run()
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "is not a streams application" in shown.stderr
