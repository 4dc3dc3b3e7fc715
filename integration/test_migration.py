"""docs/how-to/migrate-from-*.md: the other client's code and ours write the same records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient.wire.codec  # noqa: F401 - imports kafka-python without its warnings
from tests.migration_pages import PAGES, Page, Snippet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from integration.conftest import Consumed

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 7


def _snippets() -> Iterator[Any]:
    """The other clients' snippets with ours. The slice of `make test` has the first of each page,
    and the one about the partition of keys."""
    for page in PAGES:
        for number, (theirs, ours) in enumerate(page.pairs):
            short = number == 0 or "ConsistentRandom" in ours.code
            marks = () if short else (pytest.mark.full,)
            yield pytest.param(page, theirs, ours, marks=marks, id=f"{page.name}-{number}")


@pytest.mark.parametrize(("page", "theirs", "ours"), list(_snippets()))
async def test_both_write_the_same(
    kafka_cluster: Any,
    topic: str,
    create_topic: Callable[..., Awaitable[None]],
    read_topic: Callable[..., Awaitable[list[Consumed]]],
    page: Page,
    theirs: Snippet,
    ours: Snippet,
) -> None:
    expected = 100 if "range(100)" in ours.code else 1
    keyed = _same_keys_same_partitions(page, ours)
    written = []
    for snippet in (theirs, ours):
        name = f"{topic}-{snippet.module}"
        await create_topic(name, PARTITIONS)
        code = snippet.text(kafka_cluster.bootstrap, name)
        await asyncio.to_thread(exec, code, {"__name__": "__main__"})
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


def _same_keys_same_partitions(page: Page, ours: Snippet) -> bool:
    """librdkafka's hash is another one, unless the page's partitioner is used."""
    return page.name != "confluent-kafka" or "ConsistentRandom" in ours.code
