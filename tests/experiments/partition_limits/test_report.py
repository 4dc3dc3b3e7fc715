from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.partition_limits.report import (
    durations,
    mbps_rows,
    throughput,
    write_report,
)


@pytest.fixture
def html(monkeypatch, tmp_path):

    def write(results) -> str:
        write_report(tmp_path, results)
        return (tmp_path / "report.html").read_text("utf-8")

    return write


def test_every_record_acknowledged(html, results) -> None:
    text = html(results)
    assert 'class="verdict good"' in text
    for shown in ("81.9", "64.0", "101.0", "3.8", "99.5", "3, KIP-578", "1, kafkaclient"):
        assert shown in text


def test_what_failed_is_told(html, results, made) -> None:
    ours, java = made().sent
    cells = [made(sent=(replace(ours, failed=7), java), failures=("java: <dead>",))]
    text = html(replace(results, cells=cells, left_out={"too many": "no memory"}))
    assert 'class="verdict bad"' in text
    assert "java: &lt;dead&gt;; kafkaclient: 7 records failed" in text
    assert "too many: no memory" in text


def test_the_kips_row_stands_below_ours(results) -> None:
    rows = [(factor, client) for factor, client, _ in mbps_rows(results.cells)]
    assert rows == [(f, c) for f in (1, 3) for c in ("kafkaclient", "java", "KIP-578")]


def test_pictures(results) -> None:
    ours, _java, published = throughput(results.cells, 3)["data"]
    assert (ours["x"], ours["y"]) == ([100], [81.92])
    assert published["x"] == [10, 100, 500, 1000, 5000, 10_000]
    lines = {line["name"]: line["y"] for line in durations(results.cells)["data"]}
    assert lines["removed, factor 1"] == [3.75]
    assert len(lines) == 6
