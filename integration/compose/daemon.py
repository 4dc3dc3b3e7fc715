"""A Docker daemon: the one that answers, or one of our own for as long as it is needed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.testing.broker import dies_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


@contextlib.contextmanager
def docker_daemon() -> Iterator[None]:
    """Have a daemon answer in this process and its children; leaves none behind that it started.

    A daemon of our own has its socket, its data and its containerd in a temporary directory. It
    makes no bridge but the project's, and leaves the machine's routing and iptables alone: ports
    that containers publish are forwarded by `docker-proxy`, which listens on 127.0.0.1 only.
    Raises SystemExit that says what is missing.
    """
    if shutil.which("docker") is None:
        raise SystemExit("there is no `docker` (Debian: docker.io, docker-compose)")
    if _answers():
        yield
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise SystemExit(
            "no Docker daemon answers; starting one needs root and `dockerd` (Debian: docker.io)"
        )
    before = os.environ.get("DOCKER_HOST")
    directory = Path(tempfile.mkdtemp(prefix="kafkaclient-docker-"))
    try:
        os.environ["DOCKER_HOST"] = f"unix://{directory}/docker.sock"
        with _running(directory):
            yield
    finally:
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before
        shutil.rmtree(directory)


@contextlib.contextmanager
def _running(directory: Path) -> Iterator[None]:
    command = ["dockerd", "--host", os.environ["DOCKER_HOST"], "--bridge=none"]
    command += ["--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    command += ["--data-root", str(directory / "data"), "--exec-root", str(directory / "exec")]
    command += ["--pidfile", str(directory / "pid"), "--config-file", str(directory / "none.json")]
    (directory / "none.json").write_text("{}")
    log = directory / "log"
    with log.open("wb") as output:
        # A session of its own: a Ctrl-C is for this process, which has containers to remove first.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"TMPDIR": str(directory)},
            start_new_session=True,
            preexec_fn=dies_with_parent(signal.SIGTERM),  # noqa: PLW1509 - there are no threads
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers():
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text("utf-8", "replace")[-2000:]
                raise SystemExit(f"dockerd did not start:\n{text}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers() -> bool:
    done = subprocess.run(["docker", "version"], capture_output=True, check=False)
    return done.returncode == 0
