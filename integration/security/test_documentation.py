"""docs/how-to/security.md, run as it stands."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
from kafkaclient import Producer, Token
from kafkaclient.testing import ClusterSecurity, LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
from integration.security.broker import PAGE, USERS, counts, unsigned_token

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _here(text: str, cluster: LocalCluster, issuer: str = "") -> str:
    for what, here in {
        "broker.example.org:9093": cluster.secured_bootstrap("SSL"),
        "broker.example.org:9094": cluster.secured_bootstrap("MUTUAL"),
        "broker.example.org:9095": cluster.secured_bootstrap("SASL_SSL"),
        "/etc/kafka": str(cluster.certificates),
        "https://login.example.org/oauth2/token": issuer,
    }.items():
        text = text.replace(what, here)
    return text


@pytest.mark.parametrize("number", range(len(_blocks("python"))))
async def test_the_documented_examples_run(
    secured: LocalCluster, issuer: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", USERS["alice"])
    monkeypatch.setenv("CLIENT_SECRET", "client-secret")

    async def my_identity_provider() -> tuple[str, float]:
        return unsigned_token("alice", 60), 60

    @asynccontextmanager
    async def no_second_cluster(*_: Any, **__: Any) -> AsyncIterator[LocalCluster]:
        yield secured

    block = _here(_blocks("python")[number], secured, issuer)
    names = {
        **vars(kafkaclient),
        "Producer": Producer,
        "Token": Token,
        "ClusterSecurity": ClusterSecurity,
        "LocalCluster": no_second_cluster,
        "my_identity_provider": my_identity_provider,
        "os": __import__("os"),
        "time": time,
    }
    before = await counts(secured)
    exec("async def example():\n" + textwrap.indent(block, "    "), names)  # noqa: S102
    await names["example"]()
    assert await counts(secured) == before + 1


async def test_perf_test_takes_the_documented_property_file(
    secured: LocalCluster, tmp_path: Path
) -> None:
    (properties,) = _blocks("properties")
    file, results = tmp_path / "client.properties", tmp_path / "results.json"
    file.write_text(_here(properties, secured))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from kafkaclient.cli import main; main()"),
        *("perf-test", "--topic", "flights"),
        *("--num-records", "1000", "--record-size", "100", "--throughput", "-1"),
        *("--command-config", str(file), "--json", str(results)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert "1000 records sent" in output.decode()
    kept = results.read_text() + output.decode() + errors.decode()
    assert "alice-secret" not in kept
