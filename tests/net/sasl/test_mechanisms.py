from __future__ import annotations

import pytest

from kafkaclient.net.mechanisms import OAuthBearer, Plain, SaslRefusedError
from kafkaclient.net.tokens import Token, check_token


def test_plain_is_rfc_4616s() -> None:
    mechanism = Plain("tim", "tanstaaftanstaaf")
    assert mechanism.first() == b"\0tim\0tanstaaftanstaaf"
    assert mechanism.answer(b"") is None


def test_plain_knows_no_challenge() -> None:
    with pytest.raises(SaslRefusedError, match="which has none"):
        Plain("tim", "secret").answer(b"who?")


def test_oauthbearer_is_rfc_7628s() -> None:
    mechanism = OAuthBearer(Token("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="))
    assert mechanism.first() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    assert mechanism.answer(b"") is None


def test_a_refused_token_is_given_up_with_the_brokers_reason() -> None:
    mechanism = OAuthBearer(Token("abc"))
    mechanism.first()
    assert mechanism.answer(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslRefusedError, match="invalid_token"):
        mechanism.answer(b"")


def test_a_token_does_not_show_itself() -> None:
    token = Token("abc.def", 5.0, {"a": "b"})
    assert "abc" not in repr(token)


@pytest.mark.parametrize(
    "token",
    [
        Token(""),
        Token("a\x01b"),
        Token("a b"),
        Token("ä"),
        Token("a", None, {"": "v"}),
        Token("a", None, {"auth": "v"}),
        Token("a", None, {"x1": "v"}),
        Token("a", None, {"x": "\x01"}),
        Token("a", None, {"x": ""}),
    ],
)
def test_tokens_that_cannot_be_sent(token: Token) -> None:
    with pytest.raises(ValueError, match=r"token|extension"):
        check_token(token)
