"""The pages that a newcomer pastes into an empty directory, on real brokers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kafkaclient.testing.broker import free_ports
from tests.code_blocks import parses, replace_all, runs, select

pytestmark = pytest.mark.timeout(180)

RUN_S = 120
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONUNBUFFERED": "1",
}


async def _shell(command: str, directory: Path) -> list[str]:
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-emc", command],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@runs("docs/get-started/first-record.md", together=True, name="files")
@runs(
    "docs/get-started/first-record.md",
    "console",
    having="$ python",
    together=True,
    name="programs",
)
async def test_first_record(kafka_cluster, tmp_path, topic, create_topic, files, programs) -> None:
    await create_topic(topic, 6)
    commands = [command for block in programs for command in block.commands]
    assert [f"python {file.title}" for file in files] == [command.line for command in commands]
    for file, command in zip(files, commands, strict=True):
        replaced = {'"flights"': f'"{topic}"', "localhost:9092": kafka_cluster.bootstrap}
        file.write(tmp_path, replaced)
        assert await _shell(command.line, tmp_path) == list(command.output)


@runs("docs/get-started/first-test.md", together=True, name="files")
@runs("docs/get-started/first-test.md", "console")
async def test_first_test(tmp_path, files, block) -> None:
    for file in files:
        file.write(tmp_path)
    (command,) = block.commands
    printed = await _shell(command.line, tmp_path)
    assert printed[-1].startswith(command.output[0])


@runs("docs/get-started/first-deployment.md", name="service")
@runs("docs/get-started/first-deployment.md", "console")
async def test_first_deployment(
    kafka_cluster, tmp_path, topic, create_topic, service, block
) -> None:
    await create_topic(topic, 6)
    await create_topic(f"{topic}-clicks", 1)
    names = {'"orders"': f'"{topic}"', '"clicks"': f'"{topic}-clicks"'}
    service.write(tmp_path, {**names, '"confirmations"': f'"{topic}"'})
    lines = [command.line for command in block.commands]
    (port,) = free_ports(1)
    script = replace_all(
        "\n".join(["trap 'kill $(jobs -p) || true' EXIT", *lines, "wait %1 || true"]),
        {"localhost:9092": kafka_cluster.bootstrap, "8000": str(port)},
    )
    printed = " ".join(await _shell(script, tmp_path))  # with uvicorn's own lines in between
    assert "healthy" in printed
    assert re.search(r'\{"partition":\d,"offset":0\}', printed)
    assert "orders_confirmed_total 1.0" in printed


@parses("docs/get-started/first-deployment.md", "dockerfile", name="image")
@parses("docs/get-started/first-deployment.md", "yaml")
def test_the_deployments_file_gives_the_service_time_to_stop(block, image) -> None:
    pod = yaml.safe_load(block.text())["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 20 + 20
    assert '"--timeout-graceful-shutdown", "20"' in image.text()
    (service,) = select(block.page, "python")
    assert "STOP_TIMEOUT_S = 20" in service.source
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"


@runs("docs/how-to/deploy.md", having="worker.py")
async def test_a_worker_that_gets_sigterm_sends_what_it_has(
    kafka_cluster, tmp_path, topic, create_topic, read_topic, block
) -> None:
    await create_topic(topic, 1)
    block.write(tmp_path, {"ticks": topic})
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "worker.py",
        cwd=tmp_path,
        env={**ENVIRONMENT, "KAFKA_BOOTSTRAP": kafka_cluster.bootstrap},
        stdout=subprocess.PIPE,
    )
    try:
        while not await read_topic(topic):
            await asyncio.sleep(0.2)
        worker.send_signal(signal.SIGTERM)
        printed, _ = await asyncio.wait_for(worker.communicate(), RUN_S)
    finally:
        if worker.returncode is None:
            worker.kill()
    assert worker.returncode == 0
    sent = int(printed.split()[0])
    assert sent > 0
    assert len(await read_topic(topic)) == sent


@runs("docs/how-to/deploy.md", having="handler.py")
async def test_the_handler_of_lambda(
    kafka_cluster, tmp_path, topic, create_topic, read_topic, block
) -> None:
    await create_topic(topic, 1)
    block.write(tmp_path, {'send("events"': f'send("{topic}"'})
    program = "from handler import handler\nprint(handler({'records': [1, 2, 3]}, None))\n"
    (tmp_path / "invocation.py").write_text(program, "utf-8")
    command = f"KAFKA_BOOTSTRAP={kafka_cluster.bootstrap} python invocation.py"
    printed = await _shell(command, tmp_path)
    assert printed == ["{'sent': 3}"]
    assert {record.value for record in await read_topic(topic)} == {b"1", b"2", b"3"}
