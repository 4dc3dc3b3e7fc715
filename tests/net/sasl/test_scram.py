"""SCRAM against the RFC's own exchange, against a server written from the RFC, and against brokers
that are none."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.net.login import MAX_ITERATIONS, KeyCache, Scram256, Scram512
from kafkaclient.net.mechanisms import SaslRefusedError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _client(username: str = "user", password: str = "pencil", **more: object) -> Scram256:
    return Scram256(username, password, new_nonce=lambda: NONCE, **more)  # type: ignore[arg-type]


def test_the_exchange_of_rfc_7677() -> None:
    client = _client()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.answer(SERVER_FINAL) is None


def test_a_delegation_token_says_what_it_is() -> None:
    """As Java's ScramMessages.ClientFirstMessage; the proof covers it."""
    client = _client("token-id", tokenauth=True)
    assert client.first() == b"n,,n=token-id,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true"
    server = Server("sha256", "pencil")
    final = client.answer(server.first(client.first()))
    assert final is not None
    assert client.answer(server.final(final)) is None


class Server:
    """RFC 5802, section 3, from the server's side."""

    def __init__(self, digest: str, password: str, iterations: int = 4096) -> None:
        self.digest = digest
        self.salt, self.iterations = b"salt of the server", iterations
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), self.salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        self.stored_key = hashlib.new(digest, client_key).digest()
        self.server_key = self._hmac(salted, b"Server Key")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.digest).digest()

    def first(self, client_first: bytes) -> bytes:
        assert client_first.startswith(b"n,,")
        self.bare = client_first[3:]
        self.nonce = self.bare.split(b",r=", 1)[1].removesuffix(b",tokenauth=true") + b"server"
        salt = base64.b64encode(self.salt)
        self.said = b"r=%s,s=%s,i=%d" % (self.nonce, salt, self.iterations)
        return self.said

    def final(self, client_final: bytes) -> bytes:
        without_proof, _, proof = client_final.rpartition(b",p=")
        assert without_proof == b"c=biws,r=" + self.nonce
        message = self.bare + b"," + self.said + b"," + without_proof
        signature = self._hmac(self.stored_key, message)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.digest, key).digest() != self.stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(self._hmac(self.server_key, message))


@settings(max_examples=15)  # 4096 iterations on both sides each time
@given(username=st.text(min_size=1, max_size=20), password=st.text(min_size=1, max_size=20))
@pytest.mark.parametrize("kind", [Scram256, Scram512])
def test_any_user_and_password(kind: type[Scram256], username: str, password: str) -> None:
    server, client = Server(kind.digest, password), kind(username, password)
    first = client.first()
    assert first[3:].count(b",") == 1  # the name's own commas and equals signs are escaped
    escaped = first[3:].split(b",")[0].removeprefix(b"n=").decode()
    assert escaped.replace("=2C", ",").replace("=3D", "=") == username
    challenge = client.answer(server.first(first))
    assert challenge is not None
    assert password not in challenge.decode() or len(password) < 5
    assert client.answer(server.final(challenge)) is None


def test_a_wrong_password_is_refused_by_the_server() -> None:
    server, client = Server("sha256", "pencil"), Scram256("user", "pencils")
    challenge = client.answer(server.first(client.first()))
    assert challenge is not None
    with pytest.raises(SaslRefusedError, match="the broker says: invalid-proof"):
        client.answer(server.final(challenge))


@pytest.mark.parametrize("impostor", ["v=" + "A" * 43 + "=", "v=", "x=1", "v=bm8="])
def test_a_server_that_does_not_know_the_password_is_found_out(impostor: str) -> None:
    client = _client()
    client.first()
    client.answer(SERVER_FIRST)
    with pytest.raises(SaslRefusedError, match="could not prove that it knows the password"):
        client.answer(impostor.encode())


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 SCRAM iterations; accepted are 4096"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), "1000001 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=99999999999"), "is not a number"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "is not a number"),
        (SERVER_FIRST.replace(b"i=4096", "i=\uff14096".encode()), "is not a number"),
        (SERVER_FIRST.replace(b"r=rO", b"r=Ro"), "nonce does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "nonce does not continue"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "salt is empty"),
        (SERVER_FIRST.replace(b"s=W22", b"s=*22"), "salt is not base64"),
        (SERVER_FIRST.replace(b",i=4096", b""), "lacks 'i'"),
        (b"m=more," + SERVER_FIRST, "extension"),
        (b"e=unknown-user", "the broker says: unknown-user"),
        (b"\xff\xfe", "is not text"),
        (b"", "malformed"),
        (b"r=a,r=b", "malformed"),
    ],
)
def test_a_bad_first_message_is_refused(message: bytes, words: str) -> None:
    client = _client()
    client.first()
    with pytest.raises(SaslRefusedError, match=words) as caught:
        client.answer(message)
    assert "pencil" not in str(caught.value)


@given(st.binary(max_size=80))
def test_garbage_is_refused_and_nothing_else(message: bytes) -> None:
    client = _client()
    client.first()
    with pytest.raises(SaslRefusedError):
        client.answer(message)


def test_iterations_are_computed_once_for_all_connections() -> None:
    cache = KeyCache()
    first = _client(cache=cache)
    first.answer(SERVER_FIRST)
    keys = cache.keys
    assert keys is not None
    assert "hidden" in repr(keys)
    second = _client(cache=cache)
    second.answer(SERVER_FIRST)
    assert cache.keys is keys
    assert second.answer(SERVER_FINAL) is None
    second.answer(b"")
    other = _client(cache=cache)
    other.answer(SERVER_FIRST.replace(b"i=4096", b"i=5000"))
    assert cache.keys is not keys


def test_nonces_are_never_the_same() -> None:
    firsts = {Scram512("u", "p").first() for _ in range(50)}
    assert len(firsts) == 50
    assert all(len(first) >= 32 for first in firsts)


def test_the_bounds_are_those_told() -> None:
    assert MAX_ITERATIONS >= 16384  # what Kafka creates at most
