"""A small load, and what a client says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from experiments.chaos.streams import KINDS, Spec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Two producers of one unkeyed, two keyed and three explicit streams each."""
    return Spec(
        client="kafkaclient",
        bootstrap="127.0.0.1:9",
        topics={kind: f"topic-{kind}" for kind in KINDS},
        partitions=3,
        producers=2,
        keys=2,
        rate=1000,
        seconds=0.5,
        record_size=40,
        seed=1,
        outcomes=str(tmp_path / "outcomes.bin"),
    )
