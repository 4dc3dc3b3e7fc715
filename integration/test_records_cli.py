"""``kafkaclient produce`` and ``consume`` in a shell, on real brokers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.code_blocks import replace_all, runs

pytestmark = pytest.mark.timeout(180)
BIN = Path(sys.executable).parent
_WAIT = re.compile(r"still waiting for .* after \d+ s: |the wait for .* after \d+\.\d s$")


async def shell(
    bootstrap: str, command: str, *, interrupt_after_s: float | None = None
) -> tuple[int, str, str]:
    """Exit status, stdout, and stderr without lines about long waits: a busy machine has some."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"set -o pipefail; {command}"),
        env={
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "KAFKACLIENT_BOOTSTRAP": bootstrap,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if interrupt_after_s is not None:
            await asyncio.sleep(interrupt_after_s)
            os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(120):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    lines = errors.decode().splitlines(keepends=True)
    told = "".join(line for line in lines if not _WAIT.search(line))
    return process.returncode, out.decode(), told


@runs("docs/how-to/produce-consume.md", "console", together=True, name="blocks")
async def test_the_page(kafka_cluster, topic, create_topic, blocks) -> None:
    names = {name: f"{topic}-{name}" for name in ("lines", "flights", "copy")}
    await create_topic(names["lines"], 3)
    await create_topic(names["flights"], 1)
    await create_topic(names["copy"], 1)

    def named(text: str) -> str:
        for name, real in names.items():
            for before in ("produce ", "consume ", "of ", "to "):
                text = text.replace(f"{before}{name}", f"{before}{real}")
        return text

    for block in blocks:
        for command in block.commands:
            status, out, errors = await shell(kafka_cluster.bootstrap, named(command.line))
            assert status == 0, errors
            shown = named("\n".join(command.output)).splitlines()
            assert sorted(shown) == sorted([*out.splitlines(), *errors.splitlines()])


@runs("docs/how-to/groups.md", "console", together=True, name="blocks")
async def test_the_page_about_groups(kafka_cluster, topic, create_topic, blocks) -> None:
    await create_topic(topic, 1)
    names = {"billing": f"{topic}-g", "orders": topic}
    for line in (f"kafkaclient produce {topic} a b c d e", f"consume {topic} -g {topic}-g -n 2"):
        command = line if line.startswith("kafka") else f"kafkaclient {line}"
        assert (await shell(kafka_cluster.bootstrap, command))[0] == 0
    for block in blocks:
        for command in block.commands:
            line = replace_all(command.line, names)
            status, out, errors = await shell(kafka_cluster.bootstrap, f"COLUMNS=200 {line}")
            assert status == 0, errors
            shown = replace_all("\n".join(command.output), names)
            assert words(out + errors) == words(shown)


def words(text: str) -> list[str]:
    return re.sub("[━┏┓┡┩┳╇┴┬└┘─│┃]+", " ", text).split()


async def test_what_is_piped_through_is_the_same(kafka_cluster, topic, create_topic) -> None:
    await create_topic(topic, 3)
    bootstrap = kafka_cluster.bootstrap
    program = "import os,sys; sys.stdout.buffer.write(os.urandom(3_000_000))"
    copied = f"{topic}-copy"
    await create_topic(copied, 3)
    status, out, errors = await shell(
        bootstrap,
        f"""{sys.executable} -c '{program}' | tee >(sha256sum >&2) |
        kafkaclient produce {topic} -D '\\x00' -p 1 2>/dev/null &&
        kafkaclient consume {topic} -e -f '%R%s' |
        kafkaclient produce {copied} --length-prefixed -p 2 -z zstd &&
        kafkaclient consume {copied} -e -f '%s\\x00' | head -c 3000000 | sha256sum""",
    )
    assert status in {0, 1}, errors  # 1: head has ended before the last zero byte
    assert out.split()[0] in errors, errors


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("kafkaclient consume TOPIC", "0 records of TOPIC"),
        ("kafkaclient consume TOPIC -g TOPIC", "0 records of TOPIC"),
        ("(echo a; sleep 40) | kafkaclient produce TOPIC", "1 record written to TOPIC"),
    ],
)
async def test_ctrl_c_ends_it(kafka_cluster, topic, create_topic, command, told) -> None:
    await create_topic(topic, 1)
    line = f"exec {command}" if command.startswith("kafka") else command
    status, _, errors = await shell(
        kafka_cluster.bootstrap, line.replace("TOPIC", topic), interrupt_after_s=8
    )
    assert status == 130
    assert told.replace("TOPIC", topic) in errors
    assert "Traceback" not in errors


async def test_a_reader_that_has_ended_ends_it(kafka_cluster, topic, create_topic) -> None:
    """With the status of SIGPIPE."""
    await create_topic(topic, 1)
    bootstrap = kafka_cluster.bootstrap
    assert (await shell(bootstrap, f"seq 1 300000 | kafkaclient produce {topic}"))[0] == 0
    status, out, errors = await shell(bootstrap, f"kafkaclient consume {topic} | head -2")
    assert (status, out, errors) == (141, "1\n2\n", "")


async def test_what_the_brokers_refuse_is_counted(kafka_cluster, topic, create_topic) -> None:
    await create_topic(topic, 1, config={"max.message.bytes": "2000"})
    large = "x" * 5000
    status, _, errors = await shell(
        kafka_cluster.bootstrap,
        f"(echo a; sleep 2; echo {large}) | kafkaclient produce {topic}",
    )
    assert status == 1
    assert f"1 record written to {topic}" in errors
    assert "error: 1 record not written: " in errors
    assert "max.message.bytes" in errors


async def test_a_dead_leader_is_told_and_its_end(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """While the input goes on, once each."""
    await create_topic(topic, assignments={0: [1]})
    await kafka_cluster.kill(1)
    told, enough = tmp_path / "told", tmp_path / "enough"
    told.touch()
    lines = f"(echo a; until test -e {enough}; do sleep 0.1; done)"
    command = f"{lines} | kafkaclient produce {topic} 2> {told}"
    run = asyncio.create_task(shell(kafka_cluster.bootstrap, command))

    async def is_told(text: str) -> None:
        async with asyncio.timeout(60):
            while text not in told.read_text():
                assert not run.done(), told.read_text()
                await asyncio.sleep(0.1)

    try:
        await is_told("still waiting for acknowledgments")
        await kafka_cluster.start_broker(1)
        await is_told("the wait for acknowledgments")
    finally:
        enough.touch()
        await asyncio.wait({run})
    status, _, _ = run.result()
    errors = told.read_text()
    assert status == 0, errors
    waiting, ended = [line for line in errors.splitlines() if "acknowledgments" in line]
    assert "still waiting for acknowledgments of records after 5 s: 1 record to" in waiting
    assert f"{topic}-0: after" in waiting
    # The brokers may have learned of the end before: then the partition has no leader to name.
    assert "broker 1" in waiting or "waited for a leader of their partition" in waiting
    assert "the wait for acknowledgments of records ended after" in ended
    assert f"1 record written to {topic}" in errors
