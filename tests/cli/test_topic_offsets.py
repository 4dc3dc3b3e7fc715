"""``kafkaclient topics offsets`` and ``delete-records`` on the fake cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.cli.app import app
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.testing import Result

    from kafkaclient.testing.fake import Request

    Run = Callable[..., Result]


@pytest.fixture
def fake() -> FakeCluster:
    """Topic t with 10 and 4 records, one a second."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)

    async def prepare() -> None:
        async with Producer(cluster.bootstrap, dialer=cluster) as producer:
            for partition, count in enumerate((10, 4)):
                times = [number * 1000 for number in range(count)]
                await producer.send_many(
                    "t", [b""] * count, partition=partition, timestamps_ms=times
                )

    def delete(request: Request) -> dict[str, Any]:
        topics = []
        for topic in request.message.topics:
            partitions = []
            for each in topic.partitions:
                cluster.delete_records(topic.name, each.partition_index, each.offset)
                answer = {"partition_index": each.partition_index, "low_watermark": each.offset}
                partitions.append(answer | {"error_code": 0})
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    cluster.set_versions(ApiKey.DELETE_RECORDS, 0, 2)
    cluster.control(ApiKey.DELETE_RECORDS, delete, keep=True)
    asyncio.run(prepare())
    return cluster


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=fake, rng=Random(1)))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, ["topics", *words, "-b", fake.bootstrap])

    return invoke


def rows(run: Run, *words: str) -> list[list[object]]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return [list(each.values()) for each in json.loads(result.stdout)]


def test_offsets(run: Run) -> None:
    assert rows(run, "offsets", "t") == [["t", 0, 0, 10, 10], ["t", 1, 0, 4, 4]]
    assert rows(run, "offsets", "t", "--at", "@2500") == [
        ["t", 0, 0, 10, 10, 3],
        ["t", 1, 0, 4, 4, 3],
    ]
    assert rows(run, "offsets", "t:1", "-o", "-1") == [["t", 1, 0, 4, 4, 3]]
    shown = run("offsets", "t")
    assert "t" in shown.stdout
    assert shown.stderr == "14 offsets in 2 partitions\n"


def test_offsets_ask_once_for_each_kind(run: Run, fake: FakeCluster) -> None:
    before = len(fake.requests_of(ApiKey.LIST_OFFSETS))
    run("offsets", "t:0", "--at", "@2500")
    assert len(fake.requests_of(ApiKey.LIST_OFFSETS)) - before == 3


def test_records_are_deleted_after_a_confirmation(run: Run) -> None:
    asked = run("delete-records", "t", "--before", "@5500")
    assert asked.exit_code == 2
    assert "Delete the records of 10 offsets in 2 partitions? Nothing was done" in asked.stderr
    assert rows(run, "delete-records", "t", "--before", "@5500", "--yes") == [
        ["t", 0, 0, 6],
        ["t", 1, 0, 4],
    ]
    assert rows(run, "offsets", "t") == [["t", 0, 6, 10, 4], ["t", 1, 4, 4, 0]]
    assert rows(run, "delete-records", "t:0", "--before", "2") == [["t", 0, 6, 6]]


def test_partitions_without_a_leader_are_left_out(run: Run, fake: FakeCluster) -> None:
    fake.stop_broker(1)
    for words in (["offsets", "t"], ["delete-records", "t", "--before", "5", "--yes"]):
        result = run(*words)
        assert result.exit_code == 1
        assert "left out: t-1: it has no leader" in result.stderr
    assert rows(run, "offsets", "t:0") == [["t", 0, 5, 10, 5]]


def test_a_partition_that_loses_its_leader_meanwhile_is_left_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = Admin.beginning_offsets, itertools.count()

    async def first_without_one(self: Admin, partitions: Any, **how: Any) -> Any:
        left_out = 1 if next(calls) == 0 else None
        found = await whole(self, partitions, **how)
        return {each: at for each, at in found.items() if each.partition != left_out}

    monkeypatch.setattr(Admin, "beginning_offsets", first_without_one)
    result = run("offsets", "t", "--json")
    assert result.exit_code == 1
    assert [row["partition"] for row in json.loads(result.stdout)] == [0]
    assert "left out: t-1: it has no leader" in result.stderr
