"""Reads ``sasl.jaas.config``, the way in which Java's clients are given their credentials.

The text is a secret as a whole: messages tell where it is wrong, and never quote it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LoginModule", "parse_jaas"]

_CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

# As Java's StreamTokenizer splits it: quoted strings (which end with their line), words, signs.
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\r\n]*|/\*.*?\*/)
    |(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?P=quote)
    |(?P<word>[^\s"'=;/]+)
    |(?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """The one entry of a JAAS configuration."""

    class_name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.class_name}, options hidden)"


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_jaas(text: str) -> LoginModule:
    """The login module of ``<class> required name="value" ...;`` and its options.

    Quotes, escapes and comments are those of Java's ``JaasConfig``. Raises ConfigError for
    anything else, also for more than one module.
    """
    tokens = _tokens(text)
    class_name = _expect(tokens, "word", "the name of a login module").text
    flag = _expect(tokens, "word", "a control flag such as required")
    if flag.text.lower() not in _CONTROL_FLAGS:
        raise _wrong(flag, "a control flag such as required")
    options: dict[str, str] = {}
    while (name := next(tokens)).kind == "word":
        equals = next(tokens)
        if equals.text != "=" or equals.kind != "sign":
            raise _wrong(equals, "'=' after the name of an option")
        value = next(tokens)
        if value.kind not in ("word", "quoted"):
            raise _wrong(value, "the value of an option")
        options[name.text] = value.text
    if name.kind != "sign" or name.text != ";":
        raise _wrong(name, "a further option, or ';' at the end")
    if (rest := next(tokens)).kind != "end":
        raise _wrong(rest, "nothing after the ';' (one login module is what there can be)")
    return LoginModule(class_name, options)


def _tokens(text: str) -> Iterator[_Token]:
    """Never ends: the text is followed by any number of ``end`` tokens."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            yield _Token("unreadable", "", at)
            break
        if match["quote"]:
            yield _Token("quoted", _ESCAPE.sub(_character, match["text"]), at)
        elif match["word"]:
            yield _Token("word", match["word"], at)
        elif match["sign"]:
            yield _Token("sign", match["sign"], at)
        at = match.end()
    while True:
        yield _Token("end", "", len(text))


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROL.get(code, code)


def _expect(tokens: Iterator[_Token], kind: str, what: str) -> _Token:
    token = next(tokens)
    if token.kind != kind:
        raise _wrong(token, what)
    return token


def _wrong(token: _Token, expected: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read at character {token.at + 1}: expected {expected}. Its "
        'form is: org.apache.kafka.common.security.plain.PlainLoginModule required username="..." '
        'password="...";'
    )
