"""The conftest.py for aiokafka's own tests: a local broker instead of Docker, and the drop-in.

``run.py`` copies this file to ``build/aiokafka-tests/tests/conftest.py``. The names of fixtures and
attributes are those that aiokafka's tests use. ``PRODUCER=aiokafka`` leaves aiokafka's producer.
"""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization

from integration.aiokafka_tests.acls import AclManager, NoKerberos, Users
from kafkaclient.testing import ClusterSecurity, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

if os.environ.get("PRODUCER") != "aiokafka":
    # Before pytest imports a test module, because the modules import the class by name.
    from integration.aiokafka_tests.facade import install_facade

    install_facade()

_KEY_PASSWORD = b"abcdefgh"  # in aiokafka's tests
_USERS = {"test": "test"}
_BROKER = {
    "num.partitions": "2",  # of a topic that a producer creates; the tests expect 0 and 1
    "allow.everyone.if.no.acl.found": "true",
}


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run in another thread: the tests set the event loop of this thread themselves."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster(1, config=_BROKER, security=ClusterSecurity(users=_USERS, acls=True))
    _run(made.start())
    try:
        yield made
    finally:
        _run(made.stop())


@pytest.fixture(scope="session")
def ssl_folder(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ssl")
    client = (cluster.certificates / "client.pem").read_bytes()
    key = serialization.load_pem_private_key(client, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(_KEY_PASSWORD),
    )
    (folder / "ca.crt").write_bytes((cluster.certificates / "ca.pem").read_bytes())
    (folder / "client.crt").write_bytes(client)
    (folder / "client.key").write_bytes(encrypted)
    return folder


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.run_until_complete(asyncio.sleep(0))  # callbacks that are due
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """ResourceWarnings belong to the test that caused them."""
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class_serverless(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop
) -> None:
    request.cls.loop = loop


def _port(addresses: str) -> int:
    return int(addresses.rpartition(":")[2])


@pytest.fixture(scope="class")
def setup_test_class(
    request: pytest.FixtureRequest,
    loop: asyncio.AbstractEventLoop,
    cluster: LocalCluster,
    ssl_folder: Path,
) -> None:
    given = request.cls
    given.loop = loop
    given.hosts = [cluster.bootstrap]
    given.kafka_host, given.kafka_port = cluster.address(0)
    given.kafka_ssl_port = _port(cluster.secured_bootstrap("SSL"))
    given.kafka_sasl_plain_port = _port(cluster.secured_bootstrap("SASL_PLAINTEXT"))
    given.kafka_sasl_ssl_port = _port(cluster.secured_bootstrap("SASL_SSL"))
    given.kafka_version = cluster.version
    given.ssl_folder = ssl_folder
    given.acl_manager = AclManager(cluster.bootstrap)
    given.kafka_config = Users(_USERS)
    given.kerberos_utils = NoKerberos()
