"""A schema registry on 127.0.0.1, by the published HTTP API, as far as serializers use it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

USER, PASSWORD = "robot", "hunter2-secret"


class RegistryStub:
    """``delay_s`` is how late it answers; ``calls`` counts requests by method and path."""

    def __init__(self, password: str | None) -> None:
        self._password = password
        self.delay_s = 0.0
        self.refuse_with = 0
        self.calls: Counter[str] = Counter()
        self.url = ""
        self.began = asyncio.Event()
        self.gone_away = 0
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        """As POST /subjects/{subject}/versions."""
        if schema not in self._schemas:
            self._schemas.append(schema)
        identity = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if identity not in versions:
            versions.append(identity)
        return self._registered(subject, versions.index(identity) + 1)

    def _registered(self, subject: str, version: int) -> dict[str, Any]:
        identity = self._subjects[subject][version - 1]
        return {
            "subject": subject,
            "version": version,
            "id": identity,
            **self._schemas[identity - 1],
        }

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path.strip("/")
        self.calls[f"{request.method} {path}"] += 1
        self.began.set()
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.gone_away += 1
            raise
        known = b64encode(f"{USER}:{self._password}".encode()).decode()
        if self._password and request.headers.get("Authorization") != f"Basic {known}":
            return _error(401, 40101, "Unauthorized")
        if self.refuse_with:
            return _error(self.refuse_with, 50001, "the store is not available")
        body = await request.json() if request.can_read_body else {}
        try:
            return web.json_response(self._answer(request.method, path.split("/"), _schema(body)))
        except (LookupError, ValueError):
            return _error(404, 40403, f"nothing at {path}")

    def _answer(self, method: str, path: list[str], schema: dict[str, Any]) -> dict[str, Any]:
        match [method, *path]:
            case ["POST", "subjects", subject, "versions"]:
                return self.register(subject, schema)
            case ["POST", "subjects", subject]:
                version = self._subjects[subject].index(self._schemas.index(schema) + 1) + 1
                return self._registered(subject, version)
            case ["GET", "subjects", subject, "versions", version]:
                last = len(self._subjects[subject])
                return self._registered(subject, last if version == "latest" else int(version))
            case ["GET", "schemas", "ids", identity]:
                return self._schemas[int(identity) - 1]
        raise LookupError(path)


def _schema(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("schema", "schemaType", "references") if given.get(name)}


def _error(status: int, code: int, message: str) -> web.Response:
    return web.json_response({"error_code": code, "message": message}, status=status)


@asynccontextmanager
async def running_stub(password: str | None = PASSWORD) -> AsyncIterator[RegistryStub]:
    """A registry that listens on a free port of 127.0.0.1."""
    stub = RegistryStub(password)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stub.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        stub.url = f"http://{host}:{port}"
        yield stub
    finally:
        await runner.cleanup()
