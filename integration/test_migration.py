"""docs/how-to/migrate-from-*.md: the other client's code and ours write the same records."""

from __future__ import annotations

import asyncio

import pytest

import kafkaclient.wire.codec  # noqa: F401 - imports kafka-python without its warnings
from tests.code_blocks import Block, runs, select
from tests.migration_pages import counterpart

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 7


def _slow(theirs: Block) -> bool:
    """The slice of `make test` has the first snippet of each page, and the one about the partition
    of keys. tests/test_migration_pages.py runs all of them on a fake cluster."""
    first = select(theirs.page, "python")[0]
    return theirs != first and "ConsistentRandom" not in counterpart(theirs).source


@runs("docs/how-to/migrate-from-*.md", without="from kafkaclient", name="theirs", slow=_slow)
async def test_both_write_the_same(kafka_cluster, topic, create_topic, read_topic, theirs) -> None:
    ours = counterpart(theirs)
    expected = 100 if "range(100)" in ours.source else 1
    # librdkafka's hash is another one, unless the page's partitioner is used.
    keyed = "confluent" not in theirs.page or "ConsistentRandom" in ours.source
    written = []
    for whose, block in (("theirs", theirs), ("ours", ours)):
        name = f"{topic}-{whose}"
        await create_topic(name, PARTITIONS)
        replaced = {
            "localhost:9092": kafka_cluster.bootstrap,
            '"billing': f'"{name}',
            '"flights"': f'"{name}"',
        }
        await asyncio.to_thread(block.run, {"__name__": "__main__"}, replaced=replaced)
        records = await read_topic(name, "read_committed")
        async with asyncio.timeout(20):  # a commit is visible once its markers are in the log
            while len(records) < expected:
                await asyncio.sleep(0.1)
                records = await read_topic(name, "read_committed")
        written.append(
            sorted((r.value, r.key, r.headers, keyed and r.key and r.partition) for r in records)
        )
    assert written[0] == written[1]
    assert len(written[0]) == expected
