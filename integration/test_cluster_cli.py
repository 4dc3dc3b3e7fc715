"""``kafkaclient cluster``, as a shell uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from typer.testing import CliRunner

from kafkaclient.cli.cluster import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

_SHELL = [sys.executable, "-c", "from kafkaclient.cli import main; main()", "cluster"]

Run = "Callable[..., Result]"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in this process, which spares each one the start of an interpreter."""
    # The user's own clusters stay out of reach.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runner = CliRunner()

    def invoke(*arguments: str) -> Result:
        return runner.invoke(app, arguments)

    yield invoke
    invoke("down")


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_SHELL, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.full
def test_up_use_and_down(run) -> None:
    stopped = run("status")
    assert (stopped.exit_code, stopped.stdout) == (3, "")
    assert json.loads(run("status", "--json").stdout) == {"running": False}
    nothing = run("kill", "0")
    assert nothing.exit_code == 1
    assert "kafkaclient cluster up" in nothing.stderr

    up = shell("up", "--brokers", "1", "--config", "num.partitions=2", "--json")
    assert up.returncode == 0, up.stderr
    addresses = json.loads(up.stdout)
    assert set(addresses) == {"bootstrap", "proxied_bootstrap"}
    assert "broker 0 is ready" in up.stderr

    again = run("up", "--brokers", "1", "--config", "num.partitions=2", "--json")
    assert json.loads(again.stdout) == addresses
    other = run("up", "--brokers", "2")
    assert other.exit_code == 2
    assert "cluster down" in other.stderr

    status = json.loads(run("status", "--json").stdout)
    assert status["running"] is True
    assert {key: status[key] for key in addresses} == addresses
    (broker,) = status["brokers"]
    assert (broker["broker"], broker["state"], broker["controller"]) == (0, "running", True)
    jvm = psutil.Process(broker["pid"])
    table = run("status")
    assert addresses["proxied_bootstrap"] in table.stdout

    assert run("delay", "0", "20").exit_code == 0
    assert run("fault", "round-trip", "0", "5").exit_code == 0
    assert run("fault", "cut", "0", "--reset").exit_code == 0
    assert run("pause", "0").exit_code == 0
    assert json.loads(run("status", "--json").stdout)["brokers"][0]["state"] == "paused"
    assert run("resume", "0").exit_code == 0
    wrong = run("kill", "7")
    assert wrong.exit_code == 2
    assert "no broker 7" in wrong.stderr
    assert run("kill", "0").exit_code == 0
    assert not jvm.is_running()
    assert run("heal").exit_code == 0
    (healed,) = json.loads(run("status", "--json").stdout)["brokers"]
    assert healed["state"] == "running"
    assert healed["direct"] == addresses["bootstrap"]

    down = shell("down")
    assert down.returncode == 0
    assert "has ended" in down.stderr
    assert not psutil.pid_exists(healed["pid"])
    assert run("down").exit_code == 0
    assert run("status").exit_code == 3


def test_what_makes_no_sense_is_wrong_use(run) -> None:
    wrong = run("up", "--name", "../elsewhere")
    assert wrong.exit_code == 2
    assert "name" in wrong.stderr
    assert run("up", "--config", "listeners=X://0.0.0.0:1").exit_code == 2
    assert run("up", "--config", "no-equals-sign").exit_code == 2
