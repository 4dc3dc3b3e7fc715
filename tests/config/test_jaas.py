from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.config.token_providers import parse_jaas
from kafkaclient.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ('username="alice" password="alice-secret"', {"password": "alice-secret"}),
        ("username='alice' password='it''s'", None),
        ('username=alice password="a;b=c"', {"password": "a;b=c"}),
        (r'username="alice" password="a\"b\\c"', {"password": 'a"b\\c'}),
        (r'username="alice" password="a\tb\x\101"', {"password": "a\tbxA"}),
        ('username="alice" password=\'a"b\'', {"password": 'a"b'}),
        ('username="alice"\n  password = "spaced" ', {"password": "spaced"}),
        ('username="alice" /* a; */ password="x" // no more', {"password": "x"}),
        ('username="alice" password=""', {"password": ""}),
        ('username="alice" password="päss"', {"password": "päss"}),
    ],
)
def test_options_are_read_as_java_reads_them(options: str, found: dict[str, str] | None) -> None:
    text = f"{PLAIN} required {options}\n;"
    if found is None:
        with pytest.raises(ConfigError):
            parse_jaas(text)
        return
    module = parse_jaas(text)
    assert module.class_name == PLAIN
    assert module.options == {"username": "alice", **found}


@given(st.text())
def test_any_value_survives_quoting(value: str) -> None:
    escapes = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r"}
    quoted = "".join(escapes.get(letter, letter) for letter in value)
    assert parse_jaas(f'{PLAIN} required password="{quoted}";').options == {"password": value}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(text)
    except ConfigError as error:
        assert "sasl.jaas.config cannot be read at character" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at character 1: expected the name of a login module"),
        ('"hunter2"', "expected the name of a login module"),
        ("a.B", "expected a control flag"),
        ("a.B hunter2", "expected a control flag"),
        ("a.B required password", "expected '='"),
        ("a.B required password=", "expected the value"),
        ("a.B required password=;", "expected the value"),
        ('a.B required password="hunter2', "expected the value"),
        ('a.B required password="hunter2\n";', "expected the value"),
        ('a.B required password="hunter2"', "expected a further option, or ';'"),
        ('a.B required password="x"; c.D required password="hunter2";', "expected nothing after"),
        ("a.B required password=hunter2/x;", "expected a further option"),
    ],
)
def test_what_is_wrong_is_told_without_being_quoted(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(text)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_module_does_not_show_its_options() -> None:
    module = parse_jaas(f'{PLAIN} required password="hunter2";')
    assert "hunter2" not in repr(module)
