"""A batch that was decided before: whether it is the same batch, and what happens if not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafkaclient.errors import CheckpointMismatchError
from tests.spark.commit_model import Driver, Kafka, batch, commit


async def test_the_error_of_a_restored_checkpoint_says_what_to_do() -> None:
    kafka = Kafka()
    driver = Driver(kafka)
    await commit(driver, batch(kafka, 0, [1, 2]))
    other = batch(kafka, 0, [1, 2, 3, 4])
    with pytest.raises(CheckpointMismatchError) as failure:
        await commit(driver, other)
    said = str(failure.value)
    for part in (
        '2 rows, up to the end offsets {"in":{"0":2}}',
        'end offsets are {"in":{"0":4}} now',
        "Restore the newest checkpoint",
        "new checkpointLocation",
        "failOnDataLoss=false",
    ):
        assert part in said
    assert kafka.visible() == Counter([1, 2])
    await commit(driver, other, accept_loss=True)
    assert kafka.visible() == Counter([1, 2])


async def test_a_copied_checkpoint_with_another_topic_is_an_error() -> None:
    kafka = Kafka()
    await commit(Driver(kafka), batch(kafka, 7, [1]))
    with pytest.raises(CheckpointMismatchError, match="for topic t and is for topic other now"):
        await commit(Driver(kafka), batch(kafka, 7, [1], topic="other"))


async def test_other_rows_of_the_same_offsets_are_the_same_batch() -> None:
    """A query may yield other rows when it is repeated; the decided rows count."""
    kafka = Kafka()
    wanted = batch(kafka, 0, [1, 2])
    await commit(Driver(kafka), wanted)
    assert wanted.contents is not None
    again = replace(wanted, contents=replace(wanted.contents, rows=3, checksum=17))
    await commit(Driver(kafka), again)
    unreadable = replace(wanted, contents=replace(wanted.contents, end_offsets=None))
    await commit(Driver(kafka), unreadable)
    contents = replace(wanted.contents, end_offsets=None, checksum=4)
    with pytest.raises(CheckpointMismatchError, match=r"2 rows .checksum 3. and has 2 rows"):
        await commit(Driver(kafka), replace(wanted, contents=contents))
