"""Calls on a connection: the handshake, their answers and ends, and those that are held back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    ProducerStateError,
    ProtocolError,
    RequestTimedOutError,
    SaslAuthenticationError,
    UnsupportedVersionError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import ApiVersions, SaslHandshakeCall
from kafkaclient.wire.codec import decode_request, encode_response
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from kafkaclient.net.connection import Connection

# --- calls --------------------------------------------------------------------------------------


def _last_request(wire: Any) -> Any:
    return decode_request(wire.transport.written[-1][4:])


def _versions(error_code: int = 0, **highest: int) -> dict[str, Any]:
    keys = {"METADATA": 12, "API_VERSIONS": 4} | highest
    return {
        "error_code": error_code,
        "api_keys": [
            {"api_key": ApiKey[name], "min_version": 0, "max_version": newest}
            for name, newest in keys.items()
        ],
    }


def _metadata(request: Any, cluster_id: str) -> bytes:
    return encode_response(
        ApiKey.METADATA,
        request.version,
        request.correlation_id,
        cluster_id=cluster_id,
        brokers=[],
        topics=[],
        controller_id=0,
    )


async def _shaken(wire: Any, settle: Any) -> Connection:
    handshake = asyncio.create_task(wire.connection.handshake())
    await settle()
    request = _last_request(wire)
    wire.receive(
        encode_response(ApiKey.API_VERSIONS, request.version, request.correlation_id, **_versions())
    )
    await handshake
    connection: Connection = wire.connection
    return connection


@virtual_time
async def test_the_handshake_learns_the_brokers_versions(make_wire: Any, settle: Any) -> None:
    wire = make_wire()
    connection = await _shaken(wire, settle)
    assert isinstance(connection.api_versions, ApiVersions)
    assert connection.api_versions.pick(ApiKey.METADATA, 4, 13) == 12
    assert connection.api_versions_version == 5


@pytest.mark.parametrize(("named", "expected"), [(4, 4), (3, 3), (None, 0), (9, 4)])
@virtual_time
async def test_the_handshake_falls_back_to_what_the_broker_knows(
    make_wire: Any, settle: Any, named: int | None, expected: int
) -> None:
    """Version 4 has the cluster's features. Brokers before Kafka 2.4 do not name their versions."""
    wire = make_wire()
    handshake = asyncio.create_task(wire.connection.handshake())
    await settle()
    request = _last_request(wire)
    assert request.version == 5
    answer = _versions(35) if named is None else _versions(35, API_VERSIONS=named)
    if named is None:
        answer["api_keys"] = []
    wire.receive(encode_response(ApiKey.API_VERSIONS, 0, request.correlation_id, **answer))
    await settle()
    request = _last_request(wire)
    assert request.version == expected
    answer = _versions(API_VERSIONS=expected)
    wire.receive(encode_response(ApiKey.API_VERSIONS, expected, request.correlation_id, **answer))
    await handshake
    assert wire.connection.api_versions_version == expected


@virtual_time
async def test_a_handshake_that_the_broker_refuses(make_wire: Any, settle: Any) -> None:
    wire = make_wire()
    handshake = asyncio.create_task(wire.connection.handshake(0))
    await settle()
    request = _last_request(wire)
    assert request.version == 0
    wire.receive(encode_response(ApiKey.API_VERSIONS, 0, request.correlation_id, **_versions(42)))
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        await handshake


@virtual_time
async def test_a_call_needs_a_handshake_and_a_common_version(make_wire: Any) -> None:
    wire = make_wire()
    with pytest.raises(ProducerStateError):
        await wire.connection.call(MetadataCall())
    wire.connection.api_versions = ApiVersions(0, {ApiKey.METADATA: (0, 1)})
    with pytest.raises(UnsupportedVersionError):
        await wire.connection.call(MetadataCall())


@virtual_time
async def test_a_cancelled_call_disturbs_nobody(
    make_wire: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wire = make_wire()
    connection = await _shaken(wire, settle)
    calls = []
    requests = []
    for _ in range(3):
        calls.append(asyncio.create_task(connection.call(MetadataCall())))
        await settle()
        requests.append(_last_request(wire))
    calls[1].cancel()
    await settle()
    assert connection.in_flight == 3
    for n, request in enumerate(requests):
        wire.receive(_metadata(request, f"answer {n}"))
    await settle()
    assert calls[0].result().cluster_id == "answer 0"
    assert calls[1].cancelled()
    assert calls[2].result().cluster_id == "answer 2"
    assert not caplog.records


@pytest.mark.parametrize("lost", [True, False])
@virtual_time
async def test_a_call_cancelled_while_its_outcome_is_on_the_way(
    make_wire: Any, settle: Any, lost: bool
) -> None:
    wire = make_wire()
    unhandled: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, ctx: unhandled.append(ctx))
    connection = await _shaken(wire, settle)
    call = asyncio.create_task(connection.call(MetadataCall()))
    await settle()
    if lost:
        connection.connection_lost(ConnectionResetError())
    else:
        wire.receive(_metadata(_last_request(wire), "x"))
    call.cancel()
    await settle()
    assert call.cancelled()
    del call
    assert not unhandled


@virtual_time
async def test_an_answer_that_is_no_answer_fails_the_call_and_the_connection(
    make_wire: Any, settle: Any
) -> None:
    wire = make_wire()
    connection = await _shaken(wire, settle)
    call = asyncio.create_task(connection.call(MetadataCall()))
    await settle()
    wire.answer(_last_request(wire).correlation_id, b"\x01")
    with pytest.raises(ProtocolError):
        await call
    assert connection.closed


@virtual_time
async def test_a_call_ends_with_its_connection_or_its_time(make_wire: Any, settle: Any) -> None:
    for ends, expected in ((True, BrokerConnectionError), (False, RequestTimedOutError)):
        wire = make_wire(request_timeout_s=3.0)
        connection = await _shaken(wire, settle)
        call = asyncio.create_task(connection.call(MetadataCall()))
        await settle()
        if ends:
            wire.transport.lose(None)
        with pytest.raises(expected) as caught:
            await call
        assert isinstance(caught.value, KafkaError)
        assert caught.value.retriable


# --- held (KIP-368) ---------------------------------------------------------------------------


async def test_a_held_connection_sends_nothing_but_what_is_urgent(
    make_wire: Any, settle: Any
) -> None:
    wire = make_wire()
    wire.connection.api_versions = ApiVersions(0, {ApiKey.SASL_HANDSHAKE: (0, 1)})
    with wire.connection.held():
        assert not wire.connection.writable
        waiting = asyncio.create_task(wire.connection.call(SaslHandshakeCall("later")))
        urgent = asyncio.create_task(wire.connection.call(SaslHandshakeCall("now"), urgent=True))
        await settle()
        assert [b"now" in frame for frame in wire.transport.written] == [True]
        wire.answer(1, b"\0\0\0\0\0\0")
        assert (await urgent).error_code == 0
        assert len(wire.transport.written) == 1
    assert wire.connection.writable
    assert wire.writable_again == 1
    await settle()
    assert b"later" in wire.transport.written[1]
    wire.answer(2, b"\0\0\0\0\0\0")
    await waiting


async def test_who_waits_for_a_held_connection_hears_of_its_end(
    make_wire: Any, settle: Any
) -> None:
    wire = make_wire()
    wire.connection.api_versions = ApiVersions(0, {ApiKey.SASL_HANDSHAKE: (0, 1)})
    with wire.connection.held():
        waiting = asyncio.create_task(wire.connection.call(SaslHandshakeCall("later")))
        await settle()
        wire.connection.close(SaslAuthenticationError("no"))
    with pytest.raises(BrokerConnectionError, match="is closed") as caught:
        await waiting
    assert isinstance(caught.value.__cause__, SaslAuthenticationError)
    assert wire.writable_again == 0


async def test_a_full_transport_keeps_a_released_connection_waiting(make_wire: Any) -> None:
    wire = make_wire()
    with wire.connection.held():
        wire.connection.pause_writing()
    assert not wire.connection.writable
    assert wire.writable_again == 0
    with wire.connection.held():
        wire.connection.resume_writing()
        assert wire.writable_again == 0  # not yet
    assert wire.writable_again == 1
