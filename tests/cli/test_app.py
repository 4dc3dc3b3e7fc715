from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

import kafkaclient.admin
import kafkaclient.cli
from kafkaclient.cli.app import _COMMANDS, app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Command = Callable[..., int | str | None]


_AGAIN = ("kafkaclient.cli.", "kafkaclient.testing", "kafkaclient.perf")
"""What is imported again, without the missing libraries."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Run the entry point as if some libraries were not installed; returns its exit status."""
    loaded = set(sys.modules)

    def run(*words: str, missing: tuple[str, ...]) -> int | str | None:
        before = dict(sys.modules)
        for name, module in before.items():
            if name.startswith(_AGAIN):
                parent, _, child = name.rpartition(".")
                # restored, too, afterwards
                monkeypatch.setattr(before[parent], child, module, raising=False)
                monkeypatch.delitem(sys.modules, name)
        for name in missing:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(sys, "argv", ["kafkaclient", *words])
        with pytest.raises(SystemExit) as ended:
            kafkaclient.cli.main()
        return ended.value.code

    yield run
    for name in set(sys.modules) - loaded:
        if name.startswith(_AGAIN):
            del sys.modules[name]


def test_an_option_without_its_value_is_wrong_use() -> None:
    result = CliRunner().invoke(app, ["topics", "list", "-b"])
    assert result.exit_code == 2
    assert "Option '-b' requires an argument." in result.output


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
    ("library", "words"),
    [
        ("typer", []),
        ("rich.console", ["topics"]),
        ("hdrh.histogram", ["perf-test"]),
        ("prometheus_client", ["top"]),
    ],
)
def test_without_the_extra_the_command_says_what_to_install(
    command: Command, library: str, words: list[str]
) -> None:
    told = command(*words, "--help", missing=(library,))
    assert isinstance(told, str)
    assert f"needs {library.partition('.')[0]}" in told
    assert "pip install 'kafkaclient[cli]'" in told


def test_a_module_of_our_own_that_is_missing_is_no_missing_extra(command: Command) -> None:
    with pytest.raises(ModuleNotFoundError, match="perf"):
        command("perf-test", "--help", missing=("kafkaclient.perf.load",))


def test_without_the_testing_tools_only_their_commands_are_missing(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = ("platformdirs", "jgo.maven", "psutil")
    assert command("cluster", "--help", missing=tools) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "pip install 'kafkaclient[testing]'" in told
    assert "describe" in told
    assert command("perf-test", "--help", missing=tools) == 0


_OTHER_EXTRAS = ["aiokafka", "confluent_kafka", "msgspec", "opentelemetry", "pandas", "plotly"]
_OTHER_EXTRAS += ["pyarrow", "pyinstrument", "pyspark", "rocksdict"]
_LOAD = "perf-test --topic t --num-records 1 --record-size 1 --throughput -1 -b 127.0.0.1:1"


def with_cli_and_testing_only(code: str) -> subprocess.CompletedProcess[str]:
    """Run code as if the packages of the other extras were not installed."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({_OTHER_EXTRAS}))\n"
    words = [sys.executable, "-c", blocked + code]
    return subprocess.run(words, check=False, capture_output=True, text=True)


def test_each_help_needs_no_other_extra() -> None:
    code = (
        "from kafkaclient.cli.app import app\n"
        f"for name in {list(_COMMANDS)}:\n"
        "    app([name, '--help'], standalone_mode=False)"
    )
    assert with_cli_and_testing_only(code).stderr == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (_LOAD, "error: cannot reach bootstrap server 127.0.0.1:1"),
        (f"{_LOAD} --spark-master local[2]", "pip install 'kafkaclient[spark]'"),
        ("report facts --out out", "pip install 'kafkaclient[report]'"),
    ],
)
def test_what_needs_another_extra_says_which(line: str, told: str) -> None:
    code = f"sys.argv[1:] = {line.split()}; from kafkaclient.cli import main; main()"
    done = with_cli_and_testing_only(code)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_during_the_imports_shows_no_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "kafkaclient.cli.top":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert command("top", "localhost:1", missing=()) == 130


def shell(redirected: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point with standard streams that a shell has closed or redirected."""
    main = "from kafkaclient.cli import main; main()"
    line = f'exec "$@" {redirected}'
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-c", main, *words],
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "closed",
    [
        *(pytest.param(one, marks=pytest.mark.full) for one in ("<&-", ">&-", "2>&-")),
        "<&- >&- 2>&-",
    ],
)
def test_a_closed_standard_stream_does_not_end_the_event_loop(closed: str) -> None:
    done = shell(closed, "topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.1")
    assert done.returncode == 1
    if "2>&-" not in closed:
        assert done.stderr.startswith("error: no bootstrap server (127.0.0.1:1)")


@pytest.mark.parametrize(
    "words",
    [("--version",), ("topics", "--help"), pytest.param(("profiles",), marks=pytest.mark.full)],
)
@pytest.mark.parametrize(
    ("redirected", "told"),
    [
        (">&-", "error: [Errno 9] standard output is closed\n"),
        pytest.param(
            ">/dev/full",
            "error: [Errno 28] No space left on device\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
        ),
    ],
)
def test_output_that_cannot_be_written_is_a_line_and_a_status(
    words: tuple[str, ...], redirected: str, told: str
) -> None:
    done = shell(redirected, *words)
    assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.parametrize(
    "words", [("--version",), ("--help",), ("topics", "--help"), ("profiles",)]
)
def test_a_reader_of_stdout_that_has_ended_is_no_failure(words: tuple[str, ...]) -> None:
    """``| head -1``: the status of SIGPIPE, and no message."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from kafkaclient.cli import main; main()", *words],
        check=False,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_reader_of_messages_that_has_ended_ends_no_command() -> None:
    """``2>&1 >result | head -1``: a move goes on, and its result is printed."""
    reader, writer = os.pipe()
    os.close(reader)
    lines = (
        "import kafkaclient.cli, typer",
        "kafkaclient.cli._open_closed_streams()",
        "from kafkaclient.cli.output import print_json, print_message",
        "for _ in range(3):",
        "    print_message('note', 'half of it is done')",
        "    typer.echo('half of it is done', err=True)",
        "print_json({'done': True})",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], check=False, stdout=subprocess.PIPE, stderr=writer
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b'{"done": true}\n')


def test_ctrl_c_at_the_start_finds_nothing_to_import_outside_of_main() -> None:
    """An interrupted import there would show a traceback."""
    lines = (
        "import sys, os, importlib",
        "before = {*sys.modules}",
        "import kafkaclient.cli",
        "print(*({*sys.modules} - before))",
    )
    root = Path(kafkaclient.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-S", "-c", "\n".join(lines)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    frozen = {"__future__", "errno", "io"}  # io: Python 3.14 has no use for it before
    assert set(done.stdout.split()) <= {*frozen, "kafkaclient", "kafkaclient.cli"}


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined, arg-type]
    own = " ".join((command.help or "").partition("\n\n")[0].split())
    assert own == _COMMANDS[name][2]


@pytest.mark.parametrize(
    ("commands", "left_out"),
    [
        ([""], {"kafkaclient.admin", "pyarrow", "numpy"}),
        (
            list(_COMMANDS),
            {"kafka", "kafkaclient.admin.admin", "kafkaclient.reader", "kafkaclient.streams"},
        ),
    ],
)
def test_help_imports_no_client(commands: list[str], left_out: set[str]) -> None:
    code = (
        "import sys\n"
        "from kafkaclient.cli.app import app\n"
        f"for name in {commands}:\n"
        "    app([*name.split(), '--help'], standalone_mode=False)\n"
        f"print({left_out} & {{*sys.modules}} or 'none')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "none"
    assert "topics" in done.stdout


def test_each_name_of_the_admin_package_is_loaded() -> None:
    assert all(hasattr(kafkaclient.admin, name) for name in kafkaclient.admin.__all__)
