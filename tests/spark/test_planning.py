"""From where to where a batch reads, on the fake cluster."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import ConfigError, KafkaError, OffsetOutOfRangeError, UnknownTopicError
from kafkaclient.spark.group_progress import GroupProgress
from kafkaclient.spark.planning import Planner, plan_batch
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def by_partition(**offsets: int) -> str:
    return json.dumps({"t": {name[1:]: offset for name, offset in offsets.items()}})


async def planned(fake, options) -> list[tuple[int, int, int]]:
    return [(r.partition, r.start, r.end) for r in await plan_batch(options, fake)]


@pytest.fixture(autouse=True)
def records(fake, fill) -> None:
    """Partition 0 has 10 records, of which 3 are deleted; 1 has 20; 2 has none."""
    fill(0, 10)
    fill(1, 20)
    fake.delete_records("t", 0, 3)


async def test_all_records_by_default(fake, options) -> None:
    assert await planned(fake, options()) == [(0, 3, 10), (1, 0, 20)]
    assert await planned(fake, options(minPartitions="4")) == [
        (0, 3, 10),
        (1, 0, 6),
        (1, 6, 13),
        (1, 13, 20),
    ]


async def test_by_offset(fake, options) -> None:
    given = options(
        startingOffsets=by_partition(p0=5, p1=-2, p2=0),
        endingOffsets=by_partition(p0=9, p1=-1, p2=-1),
    )
    assert await planned(fake, given) == [(0, 5, 9), (1, 0, 20)]
    backwards = options(startingOffsets=by_partition(p0=9, p1=9, p2=0), endingTimestamp="1008")
    assert await planned(fake, backwards) == []


async def test_by_time(fake, options) -> None:
    given = options(
        startingTimestamp="1004",
        startingOffsetsByTimestampStrategy="latest",
        endingOffsetsByTimestamp=by_partition(p0=1006, p1=9999, p2=0),
    )
    assert await planned(fake, given) == [(0, 4, 6), (1, 4, 20)]
    with pytest.raises(ConfigError, match=r"no record with that timestamp or a later one in t-2;"):
        await planned(fake, options(startingTimestamp="1004"))


async def test_which_partitions(fake, options, fill) -> None:
    fake.create_topic("t-2", 1)
    fill(0, 1, "t-2")
    assert await planned(fake, options(assign='{"t": [1]}')) == [(1, 0, 20)]
    found = await plan_batch(options(subscribePattern=r"t.\d"), fake)
    assert [(r.topic, r.end) for r in found] == [("t-2", 1)]
    with pytest.raises(UnknownTopicError, match="t-7"):
        await planned(fake, options(assign='{"t": [1, 7]}'))
    with pytest.raises(KafkaError, match="nothing"):
        await planned(fake, options(subscribe="t,nothing"))


async def test_missing_or_nonexistent_partitions(fake, options) -> None:
    with pytest.raises(
        ConfigError, match="startingOffsets must name every partition; t-1, t-2 are"
    ):
        await planned(fake, options(startingOffsets=by_partition(p0=5)))
    with pytest.raises(ConfigError, match="endingOffsets names t-3"):
        await planned(fake, options(endingOffsets=by_partition(p0=5, p1=5, p2=0, p3=0)))


async def test_offsets_out_of_range(fake, options) -> None:
    """An error, or with failOnDataLoss=false the existing records."""
    for p0, until, said in ((1, -1, "startingOffsets has offset 1"), (3, 99, "endingOffsets has")):
        given = {
            "startingOffsets": by_partition(p0=p0, p1=0, p2=0),
            "endingOffsets": by_partition(p0=until, p1=-1, p2=-1),
        }
        with pytest.raises(OffsetOutOfRangeError, match=f"{said}.* for t-0, which has 3 to 10"):
            await planned(fake, options(**given))
        lenient = options(**given, failOnDataLoss="false")
        assert await planned(fake, lenient) == [(0, 3, 10), (1, 0, 20)]


async def test_retention_moves_the_start_meanwhile(fake, options) -> None:
    """The default start is no lost record then."""
    moved = [3]

    def move(request: Any) -> None:
        if request.message.topics[0].partitions[0].timestamp == EARLIEST_TIMESTAMP:
            moved[0] += 1
            fake.delete_records("t", 0, moved[0])

    fake.control(ApiKey.LIST_OFFSETS, move, keep=True)
    ((_, start, end), _) = await planned(fake, options())
    assert 3 < start <= moved[0]
    assert end == 10


def metadata_requests(fake) -> list[tuple[str, ...] | None]:
    """The topics of each request; None: all topics."""
    asked = [request.message.topics for request in fake.requests_of(ApiKey.METADATA)]
    return [None if each is None else tuple(topic.name for topic in each) for each in asked]


async def test_metadata_of_the_topics_asked_for_only(fake, options) -> None:
    fake.create_topic("other", 1)
    async with planner(options(subscribe="t,later"), fake) as planning:
        for _ in range(2):
            found = await planning.partitions(ignore_missing=True)
            assert found == [("t", 0), ("t", 1), ("t", 2)]
        with pytest.raises(UnknownTopicError, match="later"):
            await planning.partitions()
        fake.create_topic("later", 1)
        assert len(await planning.partitions(ignore_missing=True)) == 4
        await planning.offsets(found, "latest")
    asked = metadata_requests(fake)
    assert None not in asked
    assert not any("other" in names for names in asked)


@pytest.mark.parametrize("by", ["subscribe", "subscribePattern"])
async def test_a_plan_of_many_topics_takes_few_requests(fake, options, by: str) -> None:
    """Neither their number nor that of their partitions counts."""
    topics = [f"wide-{number}" for number in range(40)]
    for name in topics:
        fake.create_topic(name, 3)
    given = {"subscribe": ",".join(topics), "subscribePattern": "wide-.*"}
    async with planner(options(**{by: given[by]}), fake) as planning:
        ends = await planning.end_offsets()
        assert len(ends) == 120
        first = len(metadata_requests(fake))
        assert await planning.end_offsets(ends, planning.topic_ids) == ends
    assert first <= 5
    assert len(metadata_requests(fake)) - first == 1
    assert len(fake.requests_of(ApiKey.LIST_OFFSETS)) == 2 * 3  # one per broker


async def test_a_pattern_is_matched_once_per_age_of_metadata(fake, options) -> None:
    now = [0.0]
    given = options(subscribePattern="t.*", **{"kafka.metadata.max.age.ms": "60000"})
    async with planner(given, fake, lambda: now[0]) as planning:
        assert len(await planning.partitions(ignore_missing=True)) == 3
        fake.create_topic("t-2", 2)
        fake.add_partitions("t", 4)
        now[0] += 59
        assert len(await planning.partitions(ignore_missing=True)) == 4
        now[0] += 2
        assert len(await planning.partitions(ignore_missing=True)) == 6
        fake.delete_topic("t-2")
        assert len(await planning.partitions()) == 4
    assert metadata_requests(fake).count(None) == 2


async def test_progress_is_committed_to_a_group(fake, options, caplog) -> None:
    tp = TopicPartition("t", 0)
    given = options("streaming", commitOffsetsToGroup="lag")
    async with planner(given, fake) as planning:
        for offset in (3, 5):  # the newest, if there is no time for both
            await planning.commit_to_group({tp: offset})
    assert fake.committed_offset("lag", "t", 0) == 5
    assert len(fake.requests_of(ApiKey.OFFSET_COMMIT)) == 1
    failed = {"partition_index": 0, "error_code": ErrorCode.UNKNOWN_MEMBER_ID}
    fake.control(ApiKey.OFFSET_COMMIT, {"topics": [{"name": "t", "partitions": [failed]}]})
    async with planner(given, fake) as planning:
        await planning.commit_to_group({tp: 7})
    assert fake.committed_offset("lag", "t", 0) == 5
    (warning,) = [each.message for each in caplog.records]
    assert "committed to group lag" in warning
    assert "No consumer may be a member" in warning


def test_a_querys_process_imports_little() -> None:
    """The admin client only with ``commitOffsetsToGroup``."""
    code = "import sys, kafkaclient.spark.planning; print(*sys.modules)"
    found = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert "kafkaclient.reader" in found
    assert not {"kafka", "kafkaclient.admin", "kafkaclient.producer"} & set(found)


class RefusingAdmin:
    commits = 0

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def alter_offsets(self, *_: Any, **__: Any) -> None:
        self.commits += 1
        raise self._error


@pytest.mark.parametrize("error", [KafkaError("the group has members"), OSError("no sockets")])
async def test_a_group_that_refuses_commits_is_left_alone_for_a_while(caplog, error) -> None:
    now, admin = [0.0], RefusingAdmin(error)
    progress = GroupProgress(admin, "lag", lambda: now[0])
    for clock, commits in ((0, 1), (9, 1), (10, 2), (19, 2)):
        now[0] = clock
        for offset in (5, 5, 6):
            progress.report({TopicPartition("t", 0): offset})
            await asyncio.sleep(0)
        assert admin.commits == commits
    await progress.finish()
    assert admin.commits == 3
    assert len(caplog.records) == 1


@asynccontextmanager
async def planner(given, fake, clock=time.monotonic) -> AsyncIterator[Planner]:
    planning = Planner(given, fake, clock)
    await planning.start()
    try:
        yield planning
    finally:
        await planning.close()


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("given", [{}, {"endingOffsets": by_partition(p0=10, p1=20, p2=0)}])
async def test_an_old_end_is_not_believed_at_once(
    fake, options, answer_old_ends, nth: int, given: dict[str, str]
) -> None:
    """One answer of a broker that was paused, whichever it is, leaves out no record."""
    left = [nth]

    def let_pass(request: Any) -> None:
        if request.message.topics[0].partitions[0].timestamp == LATEST_TIMESTAMP:
            left[0] -= 1
            if left[0] < 0:
                control.remove()
                answer_old_ends(4)

    control = fake.control(ApiKey.LIST_OFFSETS, let_pass, keep=True)
    assert await planned(fake, options(**given)) == [(0, 3, 10), (1, 0, 20)]
