from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import kafkaclient.cli
from kafkaclient.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., int | str | None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the entry point as if some libraries were not installed; returns its exit status."""

    def run(*words: str, missing: tuple[str, ...]) -> int | str | None:
        for name in list(sys.modules):
            if name.startswith(("kafkaclient.cli.", "kafkaclient.testing", "kafkaclient.perf")):
                monkeypatch.delitem(sys.modules, name)
        for name in missing:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(sys, "argv", ["kafkaclient", *words])
        with pytest.raises(SystemExit) as ended:
            kafkaclient.cli.main()
        return ended.value.code

    return run


def test_the_commands_are_there() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in ("perf-test", "top", "report", "topics", "configs", "limits", "cluster"):
        assert name in result.output


@pytest.mark.parametrize(
    "name", ["perf-test", "top", "report", "topics", "configs", "limits", "cluster"]
)
def test_each_command_has_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize(
    "library", ["typer", "rich.console", "hdrh.histogram", "prometheus_client"]
)
def test_without_the_extra_the_command_says_what_to_install(command: Command, library: str) -> None:
    told = command("--help", missing=(library,))
    assert isinstance(told, str)
    assert f"needs {library.partition('.')[0]}" in told
    assert "pip install 'kafkaclient[cli]'" in told


def test_a_module_of_our_own_that_is_missing_is_no_missing_extra(command: Command) -> None:
    with pytest.raises(ModuleNotFoundError, match="perf"):
        command("--help", missing=("kafkaclient.perf.load",))


def test_without_the_testing_tools_only_their_commands_are_missing(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = ("platformdirs", "jgo.maven", "psutil")
    assert command("cluster", "--help", missing=tools) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "pip install 'kafkaclient[testing]'" in told
    assert "describe" in told
    assert command("perf-test", "--help", missing=tools) == 0


def test_ctrl_c_during_the_imports_shows_no_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "kafkaclient.cli.top":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert command("top", "localhost:1", missing=()) == 130
