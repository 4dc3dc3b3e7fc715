"""A web service that publishes what it is sent (FastAPI).

    python examples/fastapi_service.py localhost:9092 --port 8080 --workers 2
    curl -d '{"item": 7}' 'localhost:8080/orders?customer=ann'
    curl -d '{"page": "/"}' localhost:8080/clicks
    curl localhost:8080/ready

An order is answered once all in-sync replicas have it, a click at once. Each worker process has one
producer for all its requests. SIGTERM and Ctrl-C let the requests under way finish; then the
producer is stopped, which delivers every click that was accepted.
"""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response

from kafkaclient import KafkaError, Producer
from kafkaclient.errors import BufferFullError, InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STOP_TIMEOUT_S = 20

log = logging.getLogger("uvicorn.error")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """The producer lives as long as the worker; without brokers and topics no worker starts."""
    bootstrap, prefix = os.environ["KAFKA_BOOTSTRAP"], os.environ.get("TOPIC_PREFIX", "")
    producer = Producer(
        bootstrap,
        client_id="web-service",
        max_block_ms=10_000,
        bootstrap_connect_timeout_ms=60_000,  # brokers may start together with the service
    )
    try:
        await producer.start()
        for topic in ("orders", "clicks"):
            # A record to a topic whose metadata is known waits out an outage, up to
            # delivery.timeout.ms. To another topic it fails after max.block.ms.
            await producer.partitions_for(prefix + topic)
        yield {"producer": producer, "prefix": prefix}
    finally:
        undelivered = await producer.stop(timeout=STOP_TIMEOUT_S)
    if undelivered:
        log.error("%d clicks were accepted and not delivered", undelivered)


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=HTTPStatus.CREATED)
async def order(request: Request, customer: str = "") -> dict[str, int]:
    try:
        written = await request.state.producer.send_and_wait(
            request.state.prefix + "orders", await request.body(), key=customer.encode() or None
        )
    except KafkaError as error:
        log.warning("an order was not written: %s", error)
        if error.retriable:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "try again later") from error
        is_request = isinstance(error, InvalidRecordError)
        status = HTTPStatus.BAD_REQUEST if is_request else HTTPStatus.INTERNAL_SERVER_ERROR
        raise HTTPException(status, "this cannot be written") from error
    return {"partition": written.partition, "offset": written.offset}


@app.post("/clicks", status_code=HTTPStatus.ACCEPTED)
async def click(request: Request) -> None:
    body = await request.body()
    try:
        # No caller awaits the delivery: a failure is logged by the producer.
        request.state.producer.send_nowait(request.state.prefix + "clicks", body)
    except InvalidRecordError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
    except BufferFullError as error:
        headers = {"Retry-After": "1"}
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, headers=headers) from error


@app.get("/ready")
async def ready(request: Request) -> Response:
    """Whether records can be delivered now; the text says why not."""
    health = await request.state.producer.healthy(timeout=2)
    return Response(str(health), HTTPStatus.OK if health else HTTPStatus.SERVICE_UNAVAILABLE)


def main() -> None:
    parser = argparse.ArgumentParser(description="A web service that publishes to Kafka.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefix", default="", help="put before the names of both topics")
    options = parser.parse_args()
    # Workers are processes of their own, which import this file.
    os.environ.update(KAFKA_BOOTSTRAP=options.bootstrap, TOPIC_PREFIX=options.prefix)
    uvicorn.run(
        "fastapi_service:app",
        app_dir=str(Path(__file__).parent),
        port=options.port,
        workers=options.workers,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
    )


if __name__ == "__main__":
    main()
