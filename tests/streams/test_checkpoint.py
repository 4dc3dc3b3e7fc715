"""Checkpoint files: whole or not at all, right or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import StateStoreError
from kafkaclient.streams.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(path) is None
    for offset in (0, 17, 2**63 - 1):
        write_checkpoint(path, Checkpoint("counts", offset))
        assert read_checkpoint(path) == ("counts", offset)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


@given(position=st.integers(0, 200), bit=st.integers(0, 7), cut=st.booleans())
def test_any_damage_is_seen(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "checkpoint"
    write_checkpoint(path, Checkpoint("counts", 123_456))
    data = bytearray(path.read_bytes())
    position %= len(data)
    if cut:
        del data[position:]
    else:
        data[position] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(StateStoreError, match="checkpoint is damaged"):
        read_checkpoint(path)


def test_a_write_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(path, Checkpoint("counts", 1))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StateStoreError, match="No space left on device"):
        write_checkpoint(path, Checkpoint("counts", 2))
    assert read_checkpoint(path) == ("counts", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(StateStoreError, match="cannot be read"):
        read_checkpoint(tmp_path / "checkpoint")
