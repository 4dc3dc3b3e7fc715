"""One connection to a broker: control calls in the newest common version, over a pipeline."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import (
    BrokerConnectionError,
    EncodingError,
    KafkaError,
    ProducerStateError,
    ProtocolError,
    SslAuthenticationError,
)
from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.net.pipeline import Pipeline
from kafkaclient.net.tls_failures import explain_tls_error
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import ApiVersions, ApiVersionsCall

if TYPE_CHECKING:
    import asyncio

    from kafkaclient.wire.api import Call

T = TypeVar("T")


class Connection(Pipeline):
    """A pipelined connection to one broker."""

    api_versions: ApiVersions | None = None
    """The versions that the broker supports; None before :meth:`handshake`."""
    api_versions_version: int | None = None
    """The version of the broker's ApiVersions response."""

    async def call(
        self, call: Call[T], *, timeout_s: float | None = None, urgent: bool = False
    ) -> T:
        """The result of a control call in the newest version that both sides support.

        ``timeout_s`` replaces the request timeout. ``urgent`` calls are sent even while the
        connection is :meth:`held`. If the caller is cancelled, the connection and its other
        requests go on, and the response is ignored.

        Raises :class:`~kafkaclient.errors.UnsupportedVersionError`,
        :class:`~kafkaclient.errors.BrokerConnectionError`,
        :class:`~kafkaclient.errors.RequestTimedOutError`,
        :class:`~kafkaclient.errors.ProtocolError`, or
        :class:`~kafkaclient.errors.EncodingError` for a call with values that cannot be sent.
        """
        if self.api_versions is None:
            raise ProducerStateError(f"the connection to {self.node} has had no handshake yet")
        version = self.api_versions.pick(call.api_key, call.min_version, call.max_version)
        while self._released is not None and not urgent:
            await self._released.wait()
        return await self._call(call, version, timeout_s)

    async def handshake(
        self, max_version: int | None = None, *, cluster_id: str | None = None
    ) -> None:
        """Fetch the versions that the broker supports (KIP-35): the first call on a connection.

        If the broker does not know the version of the request, it answers so, and the request is
        repeated in the newest version that this answer names (0 before Kafka 2.4). If it closes the
        connection instead, the caller must connect again and give a lower ``max_version``. With
        ``cluster_id``, another cluster or another broker than :attr:`node_id` answers
        REBOOTSTRAP_REQUIRED from version 5 on. Raises what :meth:`call` raises, and
        :class:`~kafkaclient.errors.BrokerError` for an error code in the response.
        """
        node_id = -1 if cluster_id is None else self.node_id
        call = ApiVersionsCall(cluster_id=cluster_id, node_id=node_id)
        version = call.max_version if max_version is None else max_version
        result = await self._call(call, version, None)
        if result.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            _, newest = result.ranges.get(ApiKey.API_VERSIONS, (0, 0))
            version = min(newest, version - 1)
            result = await self._call(call, version, None)
        if result.error_code:
            raise broker_error(result.error_code, f"ApiVersions v{version} to {self.node}")
        self.api_versions = result
        self.api_versions_version = version

    def _loss(self, exc: Exception | None) -> KafkaError:
        # With TLS 1.3 a client learns only after the handshake that its certificate is missing.
        refusal = explain_tls_error(exc) if self.api_versions is None else None
        if refusal is not None:
            return SslAuthenticationError(f"TLS with {self.node} failed: {refusal}")
        return super()._loss(exc)

    async def _call(self, call: Call[T], version: int, timeout_s: float | None) -> T:
        correlation_id = self.next_correlation_id()
        response: asyncio.Future[memoryview] = self._loop.create_future()
        on_done = partial(_settle, response)
        pending = PendingRequest(correlation_id, on_done, self._clock(), call.api_key.name)
        try:
            request = call.encode(version, correlation_id, self.client_id)
        except Exception as error:
            raise EncodingError(
                f"{call.api_key.name} was not sent to {self.node}: the request cannot be encoded: "
                f"{error!r}"
            ) from error
        self.send([request], pending, timeout_s=timeout_s)
        payload = await response
        try:
            return call.decode(version, payload)
        except ProtocolError as error:
            self.close(error)
            raise


def _settle(
    response: asyncio.Future[memoryview],
    _request: PendingRequest,
    payload: memoryview | None,
    error: KafkaError | None,
) -> None:
    if response.done():  # the caller was cancelled
        return
    if payload is None:
        response.set_exception(error or BrokerConnectionError("the connection was closed"))
        response.exception()  # the caller may be cancelled now: then asyncio must not log the error
    else:
        response.set_result(payload)
