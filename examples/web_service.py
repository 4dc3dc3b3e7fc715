"""A web service that publishes what it is sent (aiohttp).

    python examples/web_service.py localhost:9092 --port 8080
    curl -d '{"item": 7}' 'localhost:8080/orders?customer=ann'
    curl -d '{"page": "/"}' localhost:8080/clicks

An order is answered once all in-sync replicas have it, a click at once. One producer serves all
requests. SIGTERM and Ctrl-C let the requests under way finish; then the producer is stopped, which
delivers every click that was accepted.
"""

from __future__ import annotations

import argparse
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from kafkaclient import KafkaError, Producer
from kafkaclient.errors import BufferFullError, InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STOP_TIMEOUT_S = 20

BOOTSTRAP = web.AppKey("bootstrap", str)
PREFIX = web.AppKey("prefix", str)
PRODUCER = web.AppKey("producer", Producer)

log = logging.getLogger("web_service")


async def kafka(app: web.Application) -> AsyncIterator[None]:
    """The producer lives as long as the application; without a broker the service won't start."""
    producer = Producer(app[BOOTSTRAP], client_id="web-service", max_block_ms=10_000)
    await producer.start()
    app[PRODUCER] = producer
    yield
    if undelivered := await producer.stop(timeout=STOP_TIMEOUT_S):
        log.error("%d clicks were accepted and not delivered", undelivered)


async def order(request: web.Request) -> web.Response:
    customer = request.query.get("customer", "")
    try:
        written = await request.app[PRODUCER].send_and_wait(
            request.app[PREFIX] + "orders", await request.read(), key=customer.encode() or None
        )
    except InvalidRecordError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    except KafkaError as error:
        log.warning("order refused: %s", error)
        raise web.HTTPServiceUnavailable(text="try again later") from error
    return web.json_response(
        {"partition": written.partition, "offset": written.offset}, status=HTTPStatus.CREATED
    )


async def click(request: web.Request) -> web.Response:
    body = await request.read()
    try:
        # Nobody awaits the delivery: a failure is logged by the producer.
        request.app[PRODUCER].send_nowait(request.app[PREFIX] + "clicks", body)
    except BufferFullError as error:
        raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}) from error
    return web.Response(status=HTTPStatus.ACCEPTED)


def make_app(bootstrap: str, prefix: str = "") -> web.Application:
    app = web.Application()
    app[BOOTSTRAP] = bootstrap
    app[PREFIX] = prefix
    app.cleanup_ctx.append(kafka)
    app.add_routes([web.post("/orders", order), web.post("/clicks", click)])
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="A web service that publishes to Kafka.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--prefix", default="", help="put before the names of both topics")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    web.run_app(make_app(options.bootstrap, options.prefix), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
