"""Checkpoint files are written completely or not at all, and damaged files are rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import StateStoreError
from kafkaclient.streams.state_directory import (
    ChangelogTopic,
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_written_checkpoint_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(path) is None
    for offset, topic_id in ((0, None), (17, UUID(int=5)), (2**63 - 1, uuid4())):
        checkpoint = Checkpoint(offset, topic_id, 1_700_000_000.125)
        write_checkpoint(path, checkpoint)
        assert read_checkpoint(path) == checkpoint
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    ("topic_id", "age_s", "problem"),
    [
        (UUID(int=1), 99, None),
        (None, 99, None),
        (UUID(int=2), 0, "deleted and created again"),
        (UUID(int=1), 101, r"101 s old, and its changelog keeps deletions for 100 s"),
    ],
)
def test_which_checkpoints_are_valid(
    topic_id: UUID | None, age_s: float, problem: str | None
) -> None:
    changelog = ChangelogTopic(UUID(int=1), 100.0)
    found = Checkpoint(7, topic_id, 1_000.0).problem(changelog, 1_000.0 + age_s)
    assert found == problem if problem is None else problem in str(found)
    unknown = ChangelogTopic(None, 100.0)
    assert Checkpoint(7, UUID(int=2), 1_000.0).problem(unknown, 1_000.0) is None


@given(position=st.integers(0, 200), bit=st.integers(0, 7), cut=st.booleans())
def test_any_damage_is_detected(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "checkpoint"
    write_checkpoint(path, Checkpoint(123_456))
    data = bytearray(path.read_bytes())
    position %= len(data)
    if cut:
        del data[position:]
    else:
        data[position] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(StateStoreError, match="checkpoint is damaged"):
        read_checkpoint(path)


def test_a_failed_write_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(path, Checkpoint(1))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StateStoreError, match="No space left on device"):
        write_checkpoint(path, Checkpoint(2))
    assert read_checkpoint(path) == Checkpoint(1)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_an_unreadable_checkpoint_raises(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(StateStoreError, match="cannot be read"):
        read_checkpoint(tmp_path / "checkpoint")
