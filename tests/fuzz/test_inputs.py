"""The inputs that fuzzing has found worth keeping, on every run; and some random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import corpus
from fuzz.seeds import seeds
from fuzz.targets import TARGETS, closed_at_the_end

if TYPE_CHECKING:
    from collections.abc import Iterator

every_target = pytest.mark.parametrize("target", TARGETS)


@pytest.fixture(autouse=True, scope="module")
def _close() -> Iterator[None]:
    with closed_at_the_end():
        yield


@every_target
def test_inputs_found_before(target: str) -> None:
    inputs = corpus.read(target)
    assert len(inputs) > 10
    for data in inputs:
        TARGETS[target](data)


@every_target
def test_well_formed_inputs_cut_anywhere(target: str) -> None:
    for data in seeds(target):
        for end in range(len(data) + 1):
            TARGETS[target](data[:end])


@every_target
@given(data=st.binary(max_size=300))
def test_random_inputs(target: str, data: bytes) -> None:
    TARGETS[target](data)
