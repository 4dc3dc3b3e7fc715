"""Fixtures for the futures of deliveries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.producer.unit.batches.future_form import Form


@pytest.fixture
def form(new_loop: Any) -> Form:
    return Form(new_loop=new_loop)


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Any:
    if request.param == "uvloop":
        return pytest.importorskip("uvloop").new_event_loop
    return asyncio.new_event_loop
