"""Programs that use the clients, as type checkers read them; nothing runs them.

An ignored error is one that users must see: mypy, and pyright in ``make types``, complain about a
comment without an error.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkaclient import Consumer, Producer, SyncConsumer, SyncProducer
from kafkaclient.admin import Admin
from kafkaclient.hooks import Hooks
from kafkaclient.reader import Reader


async def options(more: dict[str, Any]) -> None:
    """Names and types of options."""
    servers = "localhost:9092"
    Producer(servers, linger_ms=5, acks="all", compression_type="zstd", hooks=Hooks())
    Producer({"bootstrap.servers": servers, "linger.ms": "5"}, batch_size=65_536)
    Producer(bootstrap_servers=[("localhost", 9092)], ssl_cafile=Path("ca.pem"), **more)
    Producer(servers, partitioner="sticky", value_serializer=str.encode)
    Producer(servers, linger=5)  # type: ignore[call-arg]
    Producer(servers, compresion_type="zstd")  # type: ignore[call-arg]
    Producer(servers, compression_type="zst")  # type: ignore[arg-type]
    Producer(servers, linger_ms="5")  # type: ignore[arg-type]
    Producer(servers, group_id="g")  # type: ignore[call-arg]
    SyncProducer(servers, client_id="billing", exit_timeout_s=5)
    SyncProducer(servers, exit_timeout=5)  # type: ignore[call-arg]
    Consumer(servers, group_id="g", topics=["t"], auto_offset_reset="earliest")
    Consumer(servers, topics=["t"], on_error="skip", value_deserializer=bytes.decode)
    Consumer(servers, topic=["t"])  # type: ignore[call-arg]
    Consumer(servers, group_protocol="new")  # type: ignore[arg-type]
    Consumer(servers, linger_ms=5)  # type: ignore[call-arg]
    SyncConsumer(servers, group_id="g", topics=["t"], max_poll_interval_ms=60_000)
    SyncConsumer(servers, grup_id="g")  # type: ignore[call-arg]
    Reader(servers, isolation_level="read_committed")
    Reader(servers, isolation_level="committed")  # type: ignore[arg-type]
    Admin(servers, default_api_timeout_ms=5_000, limits="topic")
    Admin(servers, default_api_timeout=5)  # type: ignore[call-arg]
