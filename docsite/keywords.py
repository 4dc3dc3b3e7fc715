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

from typing import TYPE_CHECKING, Any, Literal, TypedDict

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
_CLASSES: dict[type[Options], tuple[str, str]] = {
    ClientConfig: ("ClientKeywords", "all clients"),
    ProducerConfig: ("ProducerKeywords", "`Producer` and `SyncProducer`"),
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
        parts.append(f"\n\nclass {name}({base}, total=False):\n")
        parts.append(f'    """The options of {clients.replace("`", "``")}."""\n\n')
        for each, annotation in _fields(config).items():
            if inherited.get(each) != annotation:
                parts.append(f"    {each}: {annotation}\n")
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
