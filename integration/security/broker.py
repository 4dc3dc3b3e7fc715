"""The broker of these tests, who may do what there, and whom else they need."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from kafkaclient import Token
from kafkaclient.admin import Admin
from kafkaclient.errors import AuthorizationError
from kafkaclient.testing import LocalCluster, SecureListener

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

USERS = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
LISTENERS = (
    SecureListener("SSL", "SSL"),
    SecureListener("MUTUAL", "SSL", client_certificate=True),
    SecureListener("EXPIRED", "SSL", certificate="expired"),
    SecureListener("ELSEWHERE", "SSL", certificate="elsewhere"),
    SecureListener("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
    SecureListener("SASL_SSL", "SASL_SSL"),
    SecureListener("SHORT", "SASL_SSL", max_reauth_ms=3000),
    SecureListener("SCRAM", "SASL_SSL", mechanisms=("SCRAM-SHA-512",)),
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


async def provide(user: str) -> Token:
    return Token(unsigned_token(user, 60), time.time() + 60)


def unsigned_token(user: str, life_s: float) -> str:
    now = time.time()
    # Issued a second ago: the broker's clock has milliseconds, and refuses tokens of its future.
    parts = ({"alg": "none"}, {"sub": user, "iat": now - 1, "exp": now + life_s})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b""]).decode()


@contextlib.contextmanager
def issuing(tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """An identity provider that gives everybody a token for alice; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            token = {"access_token": unsigned_token("alice", 60), "expires_in": 60}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(token).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def heeded(bootstrap: str, security: dict[str, Any], group: str) -> None:
    """Wait until the broker heeds this user's right to a group, and all that were granted with it:
    it takes an ACL a little earlier, and those of one request at once."""
    async with Admin(bootstrap, **security) as admin, asyncio.timeout(60):
        while True:
            with contextlib.suppress(AuthorizationError):
                await admin.describe_group(group)
                return
            await asyncio.sleep(0.05)


async def read(cluster: LocalCluster, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415

    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        parts = [TopicPartition(topic, p) for p in range(3)]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        await consumer.seek_to_beginning(*parts)
        values: list[bytes] = []
        async with asyncio.timeout(30):
            while sum(ends.values()) > len(values):
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    values += [message.value for message in messages]
        return values
    finally:
        await consumer.stop()


async def counts(cluster: LocalCluster) -> int:
    return len(await read(cluster, "flights"))
