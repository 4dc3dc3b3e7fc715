"""The rights that a streams application needs, and the errors without them."""

from __future__ import annotations

import asyncio
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

from integration.security.broker import heeded
from integration.streams_support import application, running, until
from kafkaclient import Producer
from kafkaclient.errors import AuthorizationError

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.streams import StreamsApp
    from kafkaclient.testing import LocalCluster

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_TOPIC, _GROUP, _TX = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_LITERAL, _PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


async def made(
    secured: LocalCluster, options: Any, topic: str, path: Path, guarantee: str, missing: str
) -> StreamsApp:
    """A counting application of alice with all rights of docs/how-to/streams.md but the missing
    one, and none on the partition limits."""
    name = f"app-{topic}"
    rights = {
        "input": (_TOPIC, topic, _LITERAL, _READ),
        "changelog create": (_TOPIC, f"{name}-", _PREFIXED, _CREATE),
        "changelog read": (_TOPIC, f"{name}-", _PREFIXED, _READ),
        "changelog write": (_TOPIC, f"{name}-", _PREFIXED, _WRITE),
        "group": (_GROUP, name, _PREFIXED, _READ),
        "transactions": (_TX, f"{name}-", _PREFIXED, _WRITE),
    }
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    bindings = [
        AclBinding(kind, place, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for right, (kind, place, pattern, operation) in rights.items()
        if right != missing
    ]
    topics = admin.create_topics([NewTopic(topic, 2, 1)])
    for done in (*topics.values(), *admin.create_acls(bindings).values()):
        done.result(30)
    security = options("SASL_PLAINTEXT", "PLAIN")
    bootstrap, _ = security.pop("bootstrap_servers"), security.pop("max_block_ms")
    await heeded(bootstrap, security, name)
    app = application(
        bootstrap, topic, path, processing_guarantee=guarantee, security_options=security
    )

    @app.processor(topic, store="s")
    async def note(record: Any, store: Any, emit: Any) -> None:
        store[b"last"] = b"%d" % record.offset

    return app


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("", None),
        ("input", r"--operation Read --topic {}"),
        ("changelog write", r"--operation Write --topic app-{}-s-changelog"),
        ("transactions", r"--operation Write --transactional-id app-{}-"),
    ],
)
async def test_rights(secured, options, tmp_path, guarantee, missing, expected) -> None:
    topic = f"words-{guarantee[0]}-{missing.replace(' ', '-') or 'all'}"
    app = await made(secured, options, topic, tmp_path, guarantee, missing)
    async with Producer(secured.bootstrap) as producer:
        await producer.send_and_wait(topic, b"v", b"k")
    async with running(app) as task:
        if expected is None or (missing == "transactions" and guarantee == "at_least_once"):

            async def runs() -> bool:
                return [each.state.value for each in app.tasks()] == ["running"] * 2

            await until(runs, task)
            return
        with pytest.raises(AuthorizationError, match=expected.format(topic)):
            await asyncio.wait_for(task, 60)
