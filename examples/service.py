"""A web service (FastAPI) that publishes orders and clicks, and confirms each order.

Run it with `KAFKA_BOOTSTRAP=localhost:9092 python -m uvicorn service:app --port 8000`.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest

from kafkaclient import Consumer, KafkaError, Producer
from kafkaclient.errors import BufferFullError, InvalidRecordError
from kafkaclient.prometheus import ConsumerMetricsCollector, ProducerMetricsCollector

STOP_TIMEOUT_S = 20
CONFIRMED = Counter("orders_confirmed", "Orders that were read back.")

log = logging.getLogger("uvicorn.error")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Each worker process has one producer and one consumer. Without brokers it does not start."""
    bootstrap = os.environ["KAFKA_BOOTSTRAP"]
    producer = Producer(
        bootstrap,
        client_id="shop",
        max_block_ms=10_000,
        bootstrap_connect_timeout_ms=60_000,  # brokers may start together with the service
        hooks=ProducerMetricsCollector(),
    )
    consumer = Consumer(
        bootstrap,
        client_id="shop",
        group_id="confirmations",
        topics=["orders"],
        auto_offset_reset="earliest",
    )
    ConsumerMetricsCollector(consumer)
    try:
        await producer.start()
        for topic in ("orders", "clicks"):
            # A record to a topic whose metadata is known waits out an outage, up to
            # delivery.timeout.ms. To another topic it fails after max.block.ms.
            await producer.partitions_for(topic)
        await consumer.start()
        confirming = asyncio.create_task(confirm_orders(consumer))
        yield {"producer": producer, "consumer": consumer, "confirming": confirming}
    finally:
        await consumer.stop()  # ends the loop of confirm_orders
        left = await producer.stop(timeout=STOP_TIMEOUT_S)
        if left:
            log.error("%d clicks were accepted and not delivered", left)
    await confirming


async def confirm_orders(consumer: Consumer) -> None:
    try:
        async for record in consumer:  # taking the next record finishes this one
            log.info("the order of %s at offset %d is confirmed", record.key, record.offset)
            CONFIRMED.inc()
    except Exception:
        log.exception("orders are not confirmed any more")


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def order(request: Request, customer: str = "") -> dict[str, int]:
    """The answer comes once all in-sync replicas have the order."""
    try:
        written = await request.state.producer.send_and_wait(
            "orders", await request.body(), key=customer.encode() or None
        )
    except KafkaError as error:
        log.warning("an order was not written: %s", error)
        if error.retriable:
            # If maybe_written is true, a second attempt may write the order twice.
            detail = {"try again": True, "may be written": error.maybe_written}
            raise HTTPException(503, detail) from error
        status = 400 if isinstance(error, InvalidRecordError) else 500
        raise HTTPException(status, "this cannot be written") from error
    return {"partition": written.partition, "offset": written.offset}


@app.post("/clicks", status_code=202)
async def click(request: Request) -> None:
    """Nobody awaits the delivery: a failure is logged and counted by the producer."""
    try:
        request.state.producer.send_nowait("clicks", await request.body())
    except InvalidRecordError as error:
        raise HTTPException(400, str(error)) from error
    except BufferFullError as error:
        raise HTTPException(503, headers={"Retry-After": "1"}) from error


@app.get("/ready")
async def ready(request: Request) -> Response:
    """Whether records can be delivered and consumed now; the text says why not."""
    state = request.state
    if state.confirming.done():
        return Response("orders are not confirmed any more", 503)
    for client in (state.producer, state.consumer):
        health = await client.healthy(timeout=2)
        if not health:
            return Response(str(health), 503)
    return Response("healthy")


@app.get("/metrics")
async def metrics() -> Response:
    return Response(await asyncio.to_thread(generate_latest), media_type=CONTENT_TYPE_LATEST)
