"""Reading one small partition to its end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.admin.limits_store import FileLimits
from kafkaclient.errors import AdminTimeoutError, AuthorizationError, ConfigError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.admin.conftest import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.admin.limits import Limits


async def test_reading_ends_with_the_error_of_the_whole(admin, fake) -> None:
    await admin.set_limits({"max.partitions": 4})
    fake.control(ApiKey.FETCH, {"error_code": 29, "responses": []}, keep=True)
    with pytest.raises(AuthorizationError, match="reading __kafkaclient_partition_limits-0"):
        await admin.create_topic("t", 1, 1)


@in_virtual_time
async def test_batches_that_are_cut_off_are_fetched_again(fake, admin) -> None:
    """And what lies before the offset, in a batch that goes beyond it, is passed over."""
    await admin.set_limits({"max.partitions": 1})
    for limit in range(2, 6):
        await admin.set_limits({"max.partitions": limit})
    topic, sizes = "__kafkaclient_partition_limits", []

    def some(request: Any) -> dict[str, Any]:
        offset = request.message.topics[0].partitions[0].fetch_offset
        batches = inspect(fake).partition(topic, 0).log.batches[offset : offset + 2]
        data = b"".join(h.base_offset.to_bytes(8, "big") + b[8:] for h, b in batches)
        sizes.append(len(data))
        cut = data[: len(data) - 7] if len(batches) > 1 else data
        told = {"partition_index": 0, "records": cut}
        return {"responses": [{"topic": topic, "partitions": [told]}]}

    fake.control(ApiKey.FETCH, some, keep=True)
    assert (await admin.limits()).max_partitions == 5
    assert len(sizes) == 5


async def test_who_may_not_read_is_told_what_grants_it(admin, fake) -> None:
    await admin.set_limits({"max.partitions": 4})
    refused = {"partition_index": 0, "error_code": 29}
    topic = "__kafkaclient_partition_limits"
    answer = {"responses": [{"topic": topic, "partitions": [refused]}]}
    fake.control(ApiKey.FETCH, answer, keep=True)
    with pytest.raises(AuthorizationError, match=rf"--operation Read --topic {topic}"):
        await admin.create_topic("t", 1, 1)
    assert "t" not in inspect(fake).topics


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_that_deletes_the_limits_is_refused(admin, fake, policy) -> None:
    fake.create_topic(LIMITS_TOPIC, 1)
    inspect(fake).topics[LIMITS_TOPIC].configs["cleanup.policy"] = policy
    advice = rf"configs alter {LIMITS_TOPIC} --add-config cleanup\.policy=compact"
    for call in (admin.set_limits({"max.partitions": 4}), admin.create_topic("t", 1, 1)):
        with pytest.raises(ConfigError, match=advice):
            await call
    assert fake.end_offset(LIMITS_TOPIC, 0) == 0
    inspect(fake).topics[LIMITS_TOPIC].configs["cleanup.policy"] = "compact"
    assert (await admin.set_limits({"max.partitions": 4})).max_partitions == 4


async def test_the_topic_gets_replicas_on_brokers_that_are_down(admin, fake) -> None:
    fake.stop_broker(0)
    fake.stop_broker(1)
    await admin.set_limits({"max.partitions": 4})
    assert sorted(inspect(fake).partition(LIMITS_TOPIC, 0).replicas) == [0, 1, 2]


async def test_the_topic_gets_as_many_replicas_as_brokers_are_not_cordoned(admin, fake) -> None:
    fake.cordon(1)
    await admin.set_limits({"max.partitions": 4})
    assert sorted(inspect(fake).partition(LIMITS_TOPIC, 0).replicas) == [0, 2]


@in_virtual_time
async def test_limits_on_a_broker_that_is_down_name_the_way_out(fake, admin) -> None:
    fake.create_topic(LIMITS_TOPIC, assignments=[(1,)])
    inspect(fake).topics[LIMITS_TOPIC].configs["cleanup.policy"] = "compact"
    fake.stop_broker(1)
    way = r"start the broker of a replica \(brokers 1\).*--ignore-limits"
    with pytest.raises(AdminTimeoutError, match=way):
        await admin.create_topic("t", 1, 1)


async def test_the_leader_is_looked_for_when_it_has_moved(admin, fake) -> None:
    await admin.set_limits({"max.partitions": 4})
    fake.control(ApiKey.LIST_OFFSETS, 6)
    assert (await admin.limits()).max_partitions == 4
    leader = fake.leader("__kafkaclient_partition_limits", 0)
    fake.move_leader("__kafkaclient_partition_limits", 0, (leader + 1) % 3)
    assert (await admin.limits()).max_partitions == 4


async def test_what_another_client_wrote_is_read(admin, fake) -> None:
    await admin.set_limits({"max.partitions": 4})
    async with Producer(fake.bootstrap, dialer=fake, compression_type="gzip") as producer:
        topic = "__kafkaclient_partition_limits"
        await producer.send_and_wait(topic, b"77", b"max.partitions", partition=0)
        await producer.send_and_wait(topic, None, b"max.broker.partitions", partition=0)
    assert (await admin.limits()).max_partitions == 77


def test_without_javaproperties_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "javaproperties", None)
    with pytest.raises(ConfigError, match=r"javaproperties.*'kafkaclient\[properties\]'"):
        FileLimits("limits.properties")


def change(path: Path, changes: dict[str, int | None]) -> Limits:
    return asyncio.run(FileLimits(path).change(changes))


def test_a_file_of_limits_keeps_what_others_wrote(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("# ours\n\nmax.partitions = 5\n! why\nmax.broker.partitions:\\\n 7\n")
    real.chmod(0o640)
    link.symlink_to("real")
    limits = change(link, {"max.partitions": 6})
    assert (limits.max_partitions, limits.max_broker_partitions) == (6, 7)
    assert (link.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o640)
    assert [line for line in real.read_text().splitlines() if line[:1] in "#!"] == [
        *("# ours", "", "! why")
    ]
    change(link, {"max.partitions": None})
    assert "max.partitions" not in real.read_text().replace("max.partitions.count", "")
    assert asyncio.run(FileLimits(real).read()).max_broker_partitions == 7
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_a_new_file_of_limits_has_the_usual_permissions(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "limits")
    change(link, {"max.partitions": 6})
    assert (tmp_path / "limits").stat().st_mode == other.stat().st_mode
    assert link.is_symlink()
