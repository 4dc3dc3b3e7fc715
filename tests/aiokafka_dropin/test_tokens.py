"""aiokafka's token provider as kafkaclient's."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from kafkaclient import Token
from kafkaclient.aiokafka.options import TokenAdapter, token_provider_for
from kafkaclient.net.tokens import TokenSource


class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, token: Any, extensions: Any = None) -> None:
        self._token, self._extensions = token, extensions

    async def token(self) -> Any:
        return self._token

    def extensions(self) -> Any:
        return super().extensions() if self._extensions is None else self._extensions


def jwt(claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize(
    ("text", "expires_at"),
    [
        (jwt({"exp": 1234}), 1234.0),
        (jwt({"sub": "x"}), None),
        (jwt({"exp": "soon"}), None),
        (jwt({"exp": 1_900_000_000_000}), None),  # milliseconds
        (jwt([1]), None),
        ("opaque", None),
        ("a.?.b", None),
        ("a.b.c", None),
    ],
)
async def test_a_token_is_used_until_its_claim_exp(text: str, expires_at: float | None) -> None:
    token = await TokenAdapter(Provider(text)).token()
    assert (token.value, token.expires_at, token.extensions) == (text, expires_at, {})


async def test_extensions_are_sent() -> None:
    token = await TokenAdapter(Provider("t", {"logicalCluster": "lkc-1"})).token()
    assert token.extensions == {"logicalCluster": "lkc-1"}


async def test_a_token_of_kafkaclients_own() -> None:
    token = Token("t", 5.0, {"a": "b"})
    assert await TokenAdapter(Provider(token)).token() is token


@pytest.mark.parametrize("wrong", [b"secret", None])
async def test_a_token_that_is_no_str(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"must return a str, not (bytes|NoneType)") as caught:
        await TokenAdapter(Provider(wrong)).token()
    assert "secret" not in str(caught.value)


def test_what_is_no_provider_is_passed_on() -> None:
    assert token_provider_for(None) is None
    assert isinstance(token_provider_for(Provider("t")), TokenAdapter)


def test_errors_name_the_wrapped_provider() -> None:
    assert TokenSource(TokenAdapter(Provider("t"))).provider == f"{__name__}:Provider"
