"""The SASL calls, against the codec that is generated from Kafka's schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api_versions import SaslAuthenticateCall, SaslHandshakeCall
from kafkaclient.wire.codec import decode_request, encode_response

SECRET = b"\0alice\0alice-secret"


def _payload(api_key: int, version: int, **fields: Any) -> bytes:
    return encode_response(api_key, version, 7, **fields)[8:]


def test_a_handshake_is_what_the_schema_says() -> None:
    frame = decode_request(SaslHandshakeCall("PLAIN").encode(1, 7, "me")[4:])
    assert (frame.api_key, frame.version, frame.correlation_id, frame.client_id) == (17, 1, 7, "me")
    assert frame.message.mechanism == "PLAIN"
    told = SaslHandshakeCall("PLAIN").decode(
        1, _payload(17, 1, error_code=33, mechanisms=["A", "B"])
    )
    assert told == (33, ("A", "B"))


@pytest.mark.parametrize("version", [0, 1, 2])
@given(message=st.binary(max_size=300))
def test_a_message_is_what_the_schema_says(version: int, message: bytes) -> None:
    call = SaslAuthenticateCall(message)
    frame = decode_request(call.encode(version, 9, "me")[4:])
    assert (frame.api_key, frame.version, frame.correlation_id) == (36, version, 9)
    assert bytes(frame.message.auth_bytes) == message
    answer = call.decode(
        version,
        _payload(
            36,
            version,
            error_code=58,
            error_message="no",
            auth_bytes=message,
            session_lifetime_ms=4000,
        ),
    )
    assert answer == (58, "no", message, 4000 if version else 0)


def test_what_is_sent_and_answered_is_never_shown() -> None:
    call = SaslAuthenticateCall(SECRET)
    assert "secret" not in repr(call)
    answer = call.decode(
        2, _payload(36, 2, error_code=0, error_message=None, auth_bytes=b"r=nonce")
    )
    assert "nonce" not in repr(answer)


@pytest.mark.parametrize("version", [0, 1, 2])
@given(st.binary(max_size=40))
def test_garbage_is_a_protocol_error(version: int, payload: bytes) -> None:
    for call in (SaslHandshakeCall("PLAIN"), SaslAuthenticateCall(b"")):
        try:
            call.decode(version, payload)
        except ProtocolError as error:
            assert "malformed SASL_" in str(error)  # noqa: PT017 - either outcome is right
