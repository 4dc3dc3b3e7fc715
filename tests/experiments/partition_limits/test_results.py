from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.partition_limits.results import Results
from kafkaclient.errors import ConfigError


def test_beside_the_kips_figures(made) -> None:
    assert made(3, 100).published_mbps == 101
    assert made(1, 5000).published_mbps == 24
    assert made(3, 7).published_mbps is None
    assert made(2, 100).published_mbps is None
    assert made().mbps("java") == 64.0
    assert made(sent=()).mbps("java") is None


def test_written_and_read(results, tmp_path) -> None:
    results.write(tmp_path)
    assert Results.read(tmp_path) == results


def test_a_folder_without_results(tmp_path) -> None:
    with pytest.raises(ConfigError, match="partition-limits"):
        Results.read(tmp_path)


def test_clean(results, made) -> None:
    assert results.is_clean
    assert not replace(results, complete=False).is_clean
    assert not replace(results, cells=[made(failures=("java: it ended",))]).is_clean
    ours, java = made().sent
    assert not replace(results, cells=[made(sent=(replace(ours, failed=1), java))]).is_clean
