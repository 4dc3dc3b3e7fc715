"""One broker with a listener for each way to authenticate, in a cluster of its own: it has ACLs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafkaclient import Producer
from kafkaclient.errors import (
    AuthorizationError,
)
from kafkaclient.testing import ClusterSecurity, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
from integration.security.broker import LISTENERS, USERS, issuing, provide


@pytest.fixture(scope="package")
def secured() -> Iterator[LocalCluster]:
    security = ClusterSecurity(users=USERS, listeners=LISTENERS, acls=True)
    cluster = LocalCluster(1, security=security, config={"delegation.token.secret.key": "any"})
    asyncio.run(cluster.start())
    try:
        _grant(cluster)
        asyncio.run(_granted(cluster))
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def _grant(cluster: LocalCluster) -> None:
    """Everybody but bob may write to ``flights``; alice may know of ``departures``."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [NewTopic(name, 3, 1) for name in ("flights", "departures", "secrets")]
    write, describe = AclOperation.WRITE, AclOperation.DESCRIBE
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    rules = [
        ("flights", "User:*", write, allow),
        ("flights", "User:bob", write, deny),
        ("departures", "User:alice", describe, allow),
    ]
    literal, topic = ResourcePatternType.LITERAL, ResourceType.TOPIC
    bindings = [AclBinding(topic, name, literal, who, "*", *rule) for name, who, *rule in rules]
    for done in (*admin.create_topics(topics).values(), *admin.create_acls(bindings).values()):
        done.result(30)


async def _granted(cluster: LocalCluster) -> None:
    """A broker heeds an ACL a little later than it takes it."""
    credentials = {"sasl_username": "alice", "sasl_password": USERS["alice"]}
    async with asyncio.timeout(30):
        while True:
            async with Producer(
                cluster.secured_bootstrap("SASL_PLAINTEXT"),
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                **credentials,
            ) as producer:
                try:
                    await producer.send_and_wait("flights", b"first")
                    with contextlib.suppress(AuthorizationError):
                        await producer.send_and_wait("departures", b"never")
                except AuthorizationError:
                    await asyncio.sleep(0.2)
                else:
                    return


@pytest.fixture
def options(secured: LocalCluster) -> Callable[..., dict[str, Any]]:
    """A producer's options for a listener, as a user with the right password."""

    def make(
        listener: str, mechanism: str | None = None, user: str = "alice", **more: Any
    ) -> dict[str, Any]:
        protocol = next(each.protocol for each in LISTENERS if each.name == listener)
        made: dict[str, Any] = {
            "bootstrap_servers": secured.secured_bootstrap(listener),
            "security_protocol": protocol,
            "max_block_ms": 30_000,
        }
        if protocol.endswith("SSL"):
            made["ssl_truststore_location"] = secured.certificates / "ca.pem"
        if mechanism is not None:
            made["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            made["sasl_oauth_token_provider"] = lambda: provide(user)
        elif mechanism is not None:
            made |= {"sasl_username": user, "sasl_password": USERS[user]}
        return made | more

    return make


@pytest.fixture
def issuer() -> Iterator[str]:
    with issuing() as url:
        yield url
