"""A griffe extension: docstrings have Sphinx's roles, and mkdocstrings reads Markdown."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLE = re.compile(r":(?:class|meth|func|attr|mod|exc|data|py:\w+):`(~?)([\w.]+)`")
_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<lead>\S[^\n]*)?::\n(?P<code>(?:\n|(?P=indent) {2,}[^\n]*\n?)+)",
    re.MULTILINE,
)


_MIXED_INTO = {
    "kafkaclient.producer.": "kafkaclient.Producer",
    "kafkaclient.testing.mock.producer": "kafkaclient.Producer",
    "kafkaclient.consumer.": "kafkaclient.Consumer",
}
"""The class whose entry has the methods that a package's classes share."""

_INTERNAL = "not for applications"


class PublicDocstrings(griffe.Extension):
    """Roles become links to the entry of the name, if there is one; ``::`` begins a code block.
    Methods of which the docstring says "not for applications" are left out, and declarations for
    type checkers: the method that they declare is documented."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called by griffe when the members of a class are known."""
        for name, member in list(cls.members.items()):
            text = None if member.is_alias else member.docstring
            if not member.runtime or (
                text is not None and _INTERNAL in " ".join(text.value.lower().split())
            ):
                cls.del_member(name)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value, obj)


def _markdown(text: str, obj: griffe.Object) -> str:
    text = _BLOCK.sub(_code_block, text)
    return _ROLE.sub(lambda role: _link(role[2], bool(role[1]), obj), text)


def _link(name: str, short: bool, obj: griffe.Object) -> str:
    shown = name.rpartition(".")[2] if short else name.lstrip(".")
    targets = list(_targets(name, obj))
    return f'<autoref identifier="{targets[0]}" optional><code>{shown}</code></autoref>'


def _targets(name: str, obj: griffe.Object) -> Iterator[str]:
    """Where a name may be: as it stands, in the class of the docstring or the class that it is
    mixed into, or in its module. A name alone must not lead to a heading that is called so."""
    if name.startswith("."):
        yield f"kafkaclient{name}"
    if "." in name and name.startswith(("kafkaclient.", "aiokafka.", "confluent_kafka.")):
        yield name
    scope: griffe.Object | None = obj
    while scope is not None:
        if name.partition(".")[0] in scope.members:
            yield f"{scope.path}.{name}"
        scope = scope.parent
    for package, cls in _MIXED_INTO.items():
        if obj.path.startswith(package):
            yield f"{cls}.{name}"
    yield f"{obj.path}.{name}"


def _code_block(block: re.Match[str]) -> str:
    indent, lead = block["indent"], block["lead"]
    code = dedent(block["code"]).strip("\n")
    first = f"{indent}{lead}:\n\n" if lead else ""
    lines = ("```python", *code.splitlines(), "```")
    fenced = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return f"{first}{fenced}\n\n"
