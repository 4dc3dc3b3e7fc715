from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import typer

from kafkaclient.cli.output import run_blocking, run_command, stop_noted
from kafkaclient.errors import BootstrapError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C does what it does in a terminal, also where the shell has it ignored (jobs by &)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def raising(error: BaseException) -> None:
    raise error


def test_the_result_is_returned() -> None:
    async def main() -> int:
        return 7

    assert run_command(main()) == 7


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("linger.ms: [bad]"), 2),
        (BootstrapError("none of h:1 [down] could be reached"), 1),
        (OSError("disk full"), 1),
    ],
)
def test_expected_errors_are_a_line_and_a_status(
    capsys: pytest.CaptureFixture[str], error: Exception, status: int
) -> None:
    with pytest.raises(typer.Exit) as raised:
        run_command(raising(error))
    assert raised.value.exit_code == status
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()))


@pytest.mark.parametrize(
    ("signal_number", "status", "told"),
    [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "terminated\n")],
)
@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_lets_the_command_clean_up(
    capsys: pytest.CaptureFixture[str], signal_number: signal.Signals, status: int, told: str
) -> None:
    cleaned = []

    async def main() -> None:
        try:
            signal.raise_signal(signal_number)
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    with pytest.raises(typer.Exit) as raised:
        run_command(main())
    assert raised.value.exit_code == status
    assert cleaned == [True]
    assert capsys.readouterr().err == told


PROMPT = """
import typer
from kafkaclient.cli.admin import confirm
from kafkaclient.cli.output import run_command

async def main() -> None:
    confirm("Delete everything?", yes=False)

typer.run(lambda: run_command(main()))
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_that_waits_for_a_confirmation(number: int, status: int) -> None:
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROMPT], stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    try:
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(screen, 1000)
        # A signal between the prompt and the read is seen once the read ends: it is sent again.
        for _ in range(4):
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        assert process.returncode == status
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_signals_are_noted_until_the_third() -> None:
    done = []

    def command(signals: int) -> None:
        with stop_noted() as noted:
            for _ in range(signals):
                signal.raise_signal(signal.SIGTERM)
            assert noted.wait(1)
            done.append(signals)

    for signals in (2, 3):
        with pytest.raises(typer.Exit) as raised:
            run_blocking(lambda: command(signals))  # noqa: B023
        assert raised.value.exit_code == 143
    assert done == [2]
