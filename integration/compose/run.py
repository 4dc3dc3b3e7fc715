"""``make compose-test``: the integration tests against the containers of docker-compose.yml.

Arguments are pytest's; without any it is ``integration``. Whatever is started here is ended and
removed again, also after a failure, a Ctrl-C or a SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from integration.compose import stand_in
from integration.compose.daemon import docker_daemon
from kafkaclient.testing.broker import dies_with_parent
from kafkaclient.testing.settings import DEFAULT_VERSION
from pytest_kafkaclient import BOOTSTRAP_VARIABLE, COMPOSE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).parents[2] / "docker-compose.yml"
PROJECT = "kafkaclient-compose-test"
IMAGE = f"apache/kafka:{DEFAULT_VERSION}"
BROKERS = range(3)
LOGS = "/tmp/kraft-combined-logs"  # noqa: S108 - KAFKA_LOG_DIRS in the containers
HEALTHY_TIMEOUT_S = 180.0
INTERRUPTED_TIMEOUT_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    for number in _SIGNALS:
        signal.signal(number, _leave)
    with docker_daemon(), image() as name, cluster(name):
        return _run_tests(sys.argv[1:] or ["integration"])


def _leave(number: int, _: object) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # the cleaning up is not to be interrupted
    sys.exit(128 + number)


def _run_tests(arguments: list[str]) -> int:
    environment = os.environ | {COMPOSE_VARIABLE: PROJECT}
    environment.pop(BOOTSTRAP_VARIABLE, None)
    command = [sys.executable, "-m", "pytest", "--no-fold-skipped", *arguments]
    with subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,  # a Ctrl-C comes once, from here
        preexec_fn=dies_with_parent(),  # noqa: PLW1509 - there are no threads
    ) as tests:
        try:
            return tests.wait()
        except BaseException:
            tests.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                tests.wait(INTERRUPTED_TIMEOUT_S)
            tests.kill()
            raise


@contextlib.contextmanager
def image() -> Iterator[str]:
    """The name of the image to use: the real one if it is here or can be pulled."""
    if _docker("image", "inspect", IMAGE).returncode == 0:
        yield IMAGE
        return
    say(f"pulling {IMAGE}")
    pulled = _docker("pull", "--quiet", IMAGE)
    if pulled.returncode == 0:
        yield IMAGE
        return
    say(f"it cannot be pulled ({pulled.stderr.strip()}): building a stand-in")
    name = stand_in.build()
    try:
        yield name
    finally:
        _docker("image", "rm", "--force", name)


@contextlib.contextmanager
def cluster(name: str) -> Iterator[None]:
    """Three healthy brokers in containers of this image, with their data in a temporary directory
    of this machine, where tests can look at it."""
    with tempfile.TemporaryDirectory(prefix="kafkaclient-compose-") as scratch:
        services = {}
        for broker in BROKERS:
            logs = Path(scratch) / f"broker-{broker}"
            logs.mkdir()
            logs.chmod(0o777)  # the image's user is another one
            services[f"broker-{broker}"] = {"image": name, "volumes": [f"{logs}:{LOGS}"]}
        extra = Path(scratch) / "extra.json"
        extra.write_text(json.dumps({"services": services}), "utf-8")
        files = ["--file", str(FILE), "--file", str(extra)]
        compose = [*_compose(), *files, "--project-name", PROJECT]
        down = [*compose, "down", "--volumes", "--timeout", "5"]
        try:
            subprocess.run(down, capture_output=True, check=True)  # what a killed run left
            subprocess.run([*compose, "up", "--detach"], check=True)
            if not _get_healthy():
                subprocess.run([*compose, "logs", "--tail", "20"], check=False)
                raise SystemExit(f"not all brokers are healthy after {HEALTHY_TIMEOUT_S:.0f} s")
            yield
        finally:
            subprocess.run(down, check=True)
            # The data belongs to the image's user: only a container can remove it everywhere.
            remove = ["--volume", f"{scratch}:/data", name, "-c", "rm -rf /data/broker-*"]
            _docker("run", "--rm", "--network=none", "--user=0", "--entrypoint=sh", *remove)


def _get_healthy() -> bool:
    """Whether all brokers become healthy in time."""
    began = time.monotonic()
    filters = [f"label=com.docker.compose.project={PROJECT}", "health=healthy"]
    options = [word for each in filters for word in ("--filter", each)]
    while time.monotonic() < began + HEALTHY_TIMEOUT_S:
        if len(_docker("ps", "--quiet", *options).stdout.split()) == len(BROKERS):
            say(f"{len(BROKERS)} brokers are healthy after {time.monotonic() - began:.0f} s")
            return True
        time.sleep(0.5)
    return False


def _compose() -> list[str]:
    if _docker("compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is not None:
        return ["docker-compose"]
    raise SystemExit("there is no Docker Compose (Debian: docker-compose)")


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)


def say(text: str) -> None:
    print(f"compose-test: {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"compose-test: {error}")
