"""The types of the clients' keyword arguments, from the declarations of their options: ``python -m
docsite.keywords`` writes ``kafkaclient/config/keywords.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.config.client import ClientConfig
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reader import AdminConfig, ReaderConfig

if TYPE_CHECKING:
    from kafkaclient.config.options import Options

MODULE = Path(__file__).parents[1] / "kafkaclient" / "config" / "keywords.py"

_HEAD = '''\
"""The types of the clients' keyword arguments, which type checkers and editors know.

Made from the declarations of the options by ``make keywords``. Only type checkers import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

from kafkaclient.types import Key_co, Key_contra, Value_co, Value_contra

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from kafkaclient.consumer.deserializers import Deserializer
    from kafkaclient.hooks import Hooks
    from kafkaclient.net.tokens import Token, TokenProvider
    from kafkaclient.producer.batches.serializers import Serializer
    from kafkaclient.producer.partitioning.partitioners import Partitioner
'''
_SERIALIZERS = ("key_serializer", "value_serializer")
"""Type checkers learn from these what a producer sends. A producer without them sends bytes."""
_SERIALIZING = """

class SerializingKeywords(ProducerKeywords, Generic[Key_contra, Value_contra], total=False):
    \"\"\"The options of ``Producer`` and ``SyncProducer``, with serializers.\"\"\"

"""
_CLASSES: dict[type[Options], tuple[str, str]] = {
    ClientConfig: ("ClientKeywords", "all clients"),
    ProducerConfig: ("ProducerKeywords", "`Producer` and `SyncProducer`, without serializers"),
    ReaderConfig: ("ReaderKeywords", "`Reader`"),
    ConsumerConfig: ("ConsumerKeywords", "`Consumer` and `SyncConsumer`"),
    AdminConfig: ("AdminKeywords", "`Admin`"),
}


def text() -> str:
    """The module's text, formatted."""
    parts = [_HEAD]
    for config, (name, clients) in _CLASSES.items():
        parent = config.__bases__[0]  # the options are inherited, and so are their types
        base = _CLASSES[parent][0] if parent in _CLASSES else "TypedDict"
        inherited = _fields(parent) if parent in _CLASSES else {}
        generic = ", Generic[Key_co, Value_co]" if config is ConsumerConfig else ""
        parts.append(f"\n\nclass {name}({base}{generic}, total=False):\n")
        parts.append(f'    """The options of {clients.replace("`", "``")}."""\n\n')
        for each, annotation in _fields(config).items():
            if inherited.get(each) != annotation and each not in _SERIALIZERS:
                parts.append(f"    {each}: {annotation}\n")
        if config is ProducerConfig:
            parts.append(_SERIALIZING)
            parts += [f"    {each}: {_fields(config)[each]}\n" for each in _SERIALIZERS]
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODULE), "-"]
    done = subprocess.run(  # noqa: S603 - our own words
        ruff, input="".join(parts), capture_output=True, text=True, check=True
    )
    return done.stdout


def _fields(config: type[Options]) -> dict[str, str]:
    """The types of the options, by name and alias."""
    return {
        name: option.kind.annotation
        for option in config.OPTIONS.values()
        for name in (option.name, *(alias.replace(".", "_") for alias in option.aliases))
    }


if __name__ == "__main__":
    MODULE.write_text(text(), "utf-8")
