"""docs/how-to/security.md, run as it stands."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from integration.shell import kafkaclient
from kafkaclient import Token
from kafkaclient.testing import ClusterSecurity, LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
from integration.security.broker import USERS, counts, unsigned_token
from tests.code_blocks import runs

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]


def _here(cluster: LocalCluster, issuer: str = "") -> dict[str, str]:
    """What this cluster has, by what the page has."""
    return {
        "broker.example.org:9093": cluster.secured_bootstrap("SSL"),
        "broker.example.org:9094": cluster.secured_bootstrap("MUTUAL"),
        "broker.example.org:9095": cluster.secured_bootstrap("SASL_SSL"),
        "/etc/kafka": str(cluster.certificates),
        "https://login.example.org/oauth2/token": issuer,
    }


@runs("docs/how-to/security.md", without="GSSAPI")
async def test_the_documented_examples_run(secured, issuer, monkeypatch, block) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", USERS["alice"])
    monkeypatch.setenv("CLIENT_SECRET", "client-secret")

    async def my_identity_provider() -> tuple[str, float]:
        return unsigned_token("alice", 60), 60

    @asynccontextmanager
    async def no_second_cluster(*_: Any, **__: Any) -> AsyncIterator[LocalCluster]:
        yield secured

    names = {
        "Token": Token,
        "ClusterSecurity": ClusterSecurity,
        "LocalCluster": no_second_cluster,
        "my_identity_provider": my_identity_provider,
        "os": os,
        "time": time,
    }
    before = await counts(secured)
    await asyncio.to_thread(block.run, names, replaced=_here(secured, issuer))
    assert await counts(secured) == before + 1


@runs("docs/how-to/security.md", "properties", without="GSSAPI")
async def test_perf_test_takes_the_documented_property_file(secured, tmp_path, block) -> None:
    file, results = tmp_path / "client.properties", tmp_path / "results.json"
    file.write_text(block.text(_here(secured)))
    ended = await kafkaclient(
        *("perf-test", "--topic", "flights"),
        *("--num-records", "1000", "--record-size", "100", "--throughput", "-1"),
        *("--command-config", str(file), "--json", str(results)),
    )
    assert ended.exit_code == 0, ended.stderr
    assert "1000 records sent" in ended.stdout
    kept = results.read_text() + ended.stdout + ended.stderr
    assert "alice-secret" not in kept
