"""The pages of options, written from the declarations in kafkaclient/config."""

from __future__ import annotations

import ast
import csv
import inspect
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from docsite.tables import table
from kafkaclient.config import ClientConfig, ProducerConfig, ReaderConfig
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.config.options import REQUIRED, Option
from kafkaclient.config.reader import AdminConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_JAVA = Path(__file__).with_name("java_options.tsv")
_UNITS = {"ms": "milliseconds", "bytes": "bytes", "memory": "bytes", "size": "bytes"}


@dataclass(frozen=True)
class OptionsPage:
    """``java_client`` is the class of Java's client whose ConfigDef is compared."""

    file: str
    title: str
    intro: str
    config: type[ClientConfig]
    java_client: str
    has: Callable[[Option], bool] = lambda _option: True

    def text(self) -> str:
        return "\n".join([f"# {self.title}\n\n{self.intro}\n", *self._sections()]).rstrip() + "\n"

    def options(self) -> list[Option]:
        return [option for option in self.config.OPTIONS.values() if self.has(option)]

    def _sections(self) -> Iterator[str]:
        sections: dict[str, list[Option]] = {}
        for option in self.options():
            sections.setdefault(option.section, []).append(option)
        texts, java = _texts(self.config), _java_options(self.java_client)
        rows = (
            (f"[`{each.name}`](#{each.name})", _short(_default(each)), _unit(each) or "", section)
            for section, options in sections.items()
            for each in options
        )
        yield table(("option", "default", "unit", "about"), rows)
        for section, options in sections.items():
            yield f"## {section}\n"
            for option in options:
                yield _entry(option, texts[option.name], java)


def _texts(config: type) -> dict[str, str]:
    """The text after each option's declaration in the source."""
    texts: dict[str, str] = {}
    for base in reversed(config.__mro__[:-1]):
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in pairwise(definition.body):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = " ".join(text.split())
    return texts


def _java_options(client: str) -> dict[str, tuple[str, str]]:
    """The default and the importance of each option of a Java client 4.4.0, by name: all options
    of its ConfigDef that are not internal."""
    with _JAVA.open(newline="", encoding="utf-8") as lines:
        rows = csv.reader(lines, delimiter="\t")
        return {name: (value, importance) for of, name, value, importance in rows if of == client}


def _entry(option: Option, text: str, java: dict[str, tuple[str, str]]) -> str:
    dotted = (option.kafka_name, *option.aliases)
    in_java = next((name for name in dotted if name in java), None)
    facts = [
        ("Names", ", ".join(f"`{name}`" for name in dotted)),
        ("Accepts", option.kind.accepts.removesuffix(", or None")),
        ("Default", _default(option)),
    ]
    if unit := _unit(option):
        facts.append(("Unit", unit))
    if in_java is None:
        facts.append(("Java", "no option of this name"))
    else:
        default, importance = java[in_java]
        shown = f"`{default}`" if default else "none"
        facts.append(("Java", f"`{in_java}`, default {shown}, importance {importance}"))
    lines = "".join(f"- {word}: {fact}\n" for word, fact in facts)
    return f"### `{option.name}`\n\n{text}\n\n{lines}"


def _unit(option: Option) -> str | None:
    last = option.name.rpartition("_")[2]
    return _UNITS.get(last) if "number" in option.kind.accepts else None


def _short(default: str) -> str:
    """A default for a column of a table: a class of Java without its package."""
    return re.sub(r"org\.apache\.kafka\.[\w.]+\.(?=[A-Z])", "", default)


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "none; it must be given"
    if option.name == "acks":
        return "`all`"
    if option.default in (None, "", ()):
        return "none"
    if isinstance(option.default, tuple):
        return f"`{','.join(option.default)}`"
    shown = str(option.default)
    return f"`{shown.lower() if isinstance(option.default, bool) else shown}`"


PAGES = (
    OptionsPage(
        "producer-options.md",
        "Producer options",
        'Give options by keyword, `Producer("localhost:9092", linger_ms=5)`, or as a mapping with '
        "Kafka's dotted names, "
        '`Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 5})`. '
        "Both forms accept all names. Text values are read as in Java's property files "
        '(`"5"`, `"true"`, `"all"`). An unknown option, a wrong type, a value out of range '
        "and conflicting options raise `ConfigError` when the producer is created. Defaults and "
        "importance of Java are those of the Java producer 4.4.0. `SyncProducer` takes the same "
        "options, without `transactional_id`.",
        ProducerConfig,
        "producer",
    ),
    OptionsPage(
        "reader-options.md",
        "Reader options",
        "Give options as for the [producer](producer-options.md). `Reader` takes all of these. "
        "Defaults and importance of Java are those of the Java consumer 4.4.0.",
        ReaderConfig,
        "consumer",
    ),
    OptionsPage(
        "consumer-options.md",
        "Consumer options",
        "Give options as for the [producer](producer-options.md). `Consumer` takes all of these. "
        "Defaults and importance of Java are those of the Java consumer 4.4.0.",
        ConsumerConfig,
        "consumer",
    ),
    OptionsPage(
        "admin-options.md",
        "Admin options",
        "Give options as for the [producer](producer-options.md). Other options of the producer "
        "are accepted without effect, so that a properties file can serve both. Defaults and "
        "importance of Java are those of the Java admin client 4.4.0.",
        AdminConfig,
        "admin",
        lambda option: (
            option.section in {"Connections", "Metadata", "Encryption", "Authentication"}
            or option.name.startswith(("retry_backoff", "default_api"))
        ),
    ),
)
