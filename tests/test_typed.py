"""O2: whoever uses the package finds types: on everything public, and told to type checkers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
import kafkaclient.testing

if TYPE_CHECKING:
    from collections.abc import Iterator


def public() -> Iterator[tuple[str, Any]]:
    for module in (kafkaclient, kafkaclient.testing):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                for member, function in inspect.getmembers(thing, inspect.isfunction):
                    ours = function.__module__.startswith("kafkaclient")
                    if ours and (not member.startswith("_") or member == "__init__"):
                        yield f"{name}.{member}", function
            elif inspect.isfunction(thing):
                yield name, thing


FUNCTIONS = dict(public())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_everything_public_is_annotated(name: str) -> None:
    signature = inspect.signature(FUNCTIONS[name])
    untyped = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
    ]
    assert not untyped
    assert signature.return_annotation is not signature.empty


def test_type_checkers_are_told() -> None:
    assert len(FUNCTIONS) > 100
    assert (Path(kafkaclient.__file__).parent / "py.typed").exists()
