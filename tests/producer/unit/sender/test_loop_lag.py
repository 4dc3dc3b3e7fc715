from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.producer.sender.wakeup import LoopLagWarning

if TYPE_CHECKING:
    import pytest


def test_bad_lags_are_told_once_a_minute_and_all_are_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    measured: list[float] = []
    now = [100.0]
    report = LoopLagWarning(lambda: now[0], measured.append)
    for at, lag in ((100, 0.9), (101, 2.0), (130, 5.0), (161.5, 1.0), (170, 3.0)):
        now[0] = at
        report.lagged(lag)
    assert measured == [0.9, 2.0, 5.0, 1.0, 3.0]
    told = [record.getMessage() for record in caplog.records]
    assert ["2.0 s" in told[0], "1.0 s" in told[1], len(told)] == [True, True, 2]
