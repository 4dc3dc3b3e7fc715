"""What a broker denies to one principal and not to another."""

from __future__ import annotations

import asyncio
import contextlib

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

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

# --- ACLs -----------------------------------------------------------------------------------------


async def test_a_denial_names_operation_and_topic_and_harms_no_other_record(options) -> None:
    async with Producer(**options("SASL_SSL", "PLAIN")) as producer:
        allowed = await producer.send("flights", b"v")
        with pytest.raises(AuthorizationError, match="may not Write on the topic 'departures'"):
            await producer.send_and_wait("departures", b"v")
        with pytest.raises(AuthorizationError, match="may not Describe on the topic 'secrets'"):
            await producer.send("secrets", b"v")
        await allowed
        await producer.send_and_wait("flights", b"v")


async def test_idempotence_that_is_denied_is_named(options) -> None:
    """bob may not write anywhere, which is what brokers since 2.8 ask for (KIP-679)."""
    async with Producer(**options("SASL_SSL", "PLAIN", "bob")) as producer:
        for _ in range(2):
            with pytest.raises(AuthorizationError, match="may not IdempotentWrite on the cluster"):
                await producer.send_and_wait("flights", b"v")


async def test_idempotence_needs_no_more_than_a_topic_to_write_to(secured, options) -> None:
    """A producer that was refused goes on when its user is allowed to write, and only there."""
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    (place,) = admin.create_topics([NewTopic("later", 1, 1)])
    write, allow = AclOperation.WRITE, AclPermissionType.ALLOW
    binding = AclBinding(
        *(ResourceType.TOPIC, place, ResourcePatternType.LITERAL, "User:bob", "*", write, allow)
    )
    async with Producer(**options("SASL_SSL", "PLAIN", "bob")) as producer:
        with pytest.raises(AuthorizationError, match="may not IdempotentWrite on the cluster"):
            await producer.send_and_wait("flights", b"v")
        for done in admin.create_acls([binding]).values():
            done.result(30)
        async with asyncio.timeout(30):
            while True:  # a broker heeds an ACL a little later than it takes it
                with contextlib.suppress(AuthorizationError):
                    assert (await producer.send_and_wait(place, b"allowed")).offset == 0
                    break
        with pytest.raises(AuthorizationError, match="may not Write on the topic 'flights'"):
            await producer.send_and_wait("flights", b"v")
        assert (await producer.send_and_wait(place, b"allowed")).offset == 1


async def test_without_idempotence_only_the_topic_is_denied(options) -> None:
    given = options("SASL_SSL", "PLAIN", "bob", enable_idempotence=False)
    async with Producer(**given) as producer:
        for _ in range(2):  # the producer goes on
            with pytest.raises(AuthorizationError, match=r"may not .* on the topic 'flights'"):
                await producer.send_and_wait("flights", b"v")
