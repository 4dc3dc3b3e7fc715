"""Sends records with an installed wheel, without any extra and without pytest.

cibuildwheel runs it in the environment of each wheel, ``make wheel-test`` in an empty one. It ends
with an error if what is imported is not the installed package.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import files, version
from pathlib import Path

import kafkaclient
from kafkaclient.testing import FakeCluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def check_installation() -> None:
    """Raises AssertionError if a source tree is imported, or the version is not the wheel's."""
    installed = {Path(str(file.locate())).resolve() for file in files("kafkaclient") or ()}
    assert Path(kafkaclient.__file__).resolve() in installed, f"{kafkaclient.__file__}: not a wheel"
    assert kafkaclient.__version__ == version("kafkaclient"), kafkaclient.__version__


async def send() -> None:
    """Sends a few records with each codec to a cluster in memory."""
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 2)
    for codec in CODECS:
        options = {"bootstrap.servers": fake.bootstrap, "compression.type": codec}
        async with kafkaclient.Producer(options, dialer=fake) as producer:
            await producer.send_and_wait("t", codec.encode() * 100, key=b"k")
            await (await producer.send_many("t", [b"1", b"2", b"3"]))
    sent = sum(len(fake.log("t", partition)) for partition in range(2))
    assert sent == 4 * len(CODECS), sent
    sys.stdout.write(f"{sys.version.split()[0]}: compiled, {sent} records acknowledged\n")


if __name__ == "__main__":
    check_installation()
    asyncio.run(send())
