"""Settings for all unit tests, and what no test may do: block its event loop from our code."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import re
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import kafkaclient
from tests.stuck import pytest_runtest_teardown  # noqa: F401 - a hook

if TYPE_CHECKING:
    from collections.abc import Iterator

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background. Programs that the tests interrupt would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No deadline: a busy machine is no defect. HYPOTHESIS_PROFILE=exhaustive looks longer.
settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None)
settings.register_profile("exhaustive", max_examples=5000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_HERE = Path(__file__).parent
_PRODUCT = Path(kafkaclient.__file__).parent  # of a source tree, or of an installed wheel
_TOOLS = tuple(str(_PRODUCT / name) for name in ("testing", "cli", "perf", "streams/state"))
"""Tools may wait. A task's state is on the local disk, and is read and written between records."""
_BLOCKING = frozenset(
    {
        *("open", "os.listdir", "os.scandir", "subprocess.Popen", "time.sleep"),
        *("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"),
        *("socket.connect", "socket.sendto", "socket.sendmsg"),
    }
)
"""Python's audit events for what may wait for a disk, a name server or a peer."""

_OTHERS = re.compile(rf"importlib|linecache|traceback|^{re.escape(str(_HERE))}")
"""A module that is imported when it is first needed, the source for a traceback, the test's own."""
_ALLOWED = frozenset({("tls.py", "_read"), ("reading.py", "read")})
"""Certificates, which are read at the start and when they have changed; telemetry.read, which is no
part of a producer."""

_caught: list[str] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _BLOCKING or asyncio._get_running_loop() is None:
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        if arguments[0].gettimeout() == 0:  # it does not wait
            return
    elif event == "open" and not isinstance(arguments[0], str | bytes):
        return  # a descriptor
    elif event == "socket.getaddrinfo" and _is_literal(arguments[0]):
        return
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _OTHERS.search(file) or (Path(file).name, frame.f_code.co_name) in _ALLOWED:
            return
        if file.startswith(str(_PRODUCT)) and Path(file).name != "whole_file.py":  # its caller's
            if not file.startswith(_TOOLS):
                _caught.append(f"{event}{arguments}\n{''.join(traceback.format_stack(frame)[-6:])}")
            return
        frame = frame.f_back


def _is_literal(host: Any) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


sys.addaudithook(_listen)  # an audit hook cannot be removed


@pytest.fixture(autouse=True)
def blocking_calls() -> Iterator[list[str]]:
    """A4: no file, no name, no socket is waited for where an event loop runs. What was caught."""
    _caught.clear()
    yield _caught
    assert not _caught, "\n".join(["blocking calls in the event loop:", *_caught])


def pytest_configure() -> None:
    """Refuse to test compiled code that is not of today's sources."""
    extensions = _PRODUCT.parent / "release" / "extensions.py"
    if extensions.exists() and (stale := runpy.run_path(str(extensions))["stale"]()):
        raise pytest.UsageError(f"{', '.join(stale)}: not compiled from today's source: make build")


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collections, which tests ask for: each would take a
    third of a second."""
    gc.collect()
    gc.freeze()
