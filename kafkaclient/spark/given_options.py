"""The options given to ``format("kafkaclient")``: checks their names, and parses their values."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kafkaclient.config import ClientConfig, ReaderConfig
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
Mode = Literal["batch", "streaming"]

_CLIENT = "kafka."
# Options of the JVM's connector and its consumer that have no effect without a consumer group.
_IGNORED = {
    "groupidprefix",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "kafka.group.id",
    "kafka.group.instance.id",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
}
# Options that Spark's own readers and writers add.
_SET_BY_SPARK = {"path", "paths", "checkpointlocation", "queryname", "outputmode"}
_REJECTED = {
    "kafka.auto.offset.reset": "use startingOffsets: Spark tracks the offsets",
    "kafka.enable.auto.commit": "offsets are in Spark's checkpoint, not in Kafka",
    "kafka.interceptor.classes": "Java classes cannot be loaded",
    "kafka.key.deserializer": "keys are read as BINARY: cast the column",
    "kafka.value.deserializer": "values are read as BINARY: cast the column",
    "kafka.key.serializer": "keys are written from STRING or BINARY columns",
    "kafka.value.serializer": "values are written from STRING or BINARY columns",
    "kafka.transactional.id": "each task gets its own: use exactlyOnce and transactionalIdPrefix",
}


def matching(
    pattern: str, convert: Callable[[re.Match[str]], T], advice: str
) -> Callable[[str], T]:
    """A parser of values that match the pattern in any case; its ValueError is ``advice``."""

    def parse(text: str) -> T:
        if (found := re.fullmatch(pattern, text, re.IGNORECASE)) is not None:
            return convert(found)
        raise ValueError(advice)

    return parse


flag = matching("true|false", lambda found: found[0].lower() == "true", "give true or false")
count = matching(r"0*[1-9]\d*", lambda found: int(found[0]), "give an integer above 0")


def option(name: str, parse: Callable[[str], T], default: T, group: str = "") -> Any:
    """Declares a dataclass field that :meth:`GivenOptions.declared_by` reads. ``group``: what
    :func:`option_names` selects by."""
    return dataclasses.field(
        default=default, metadata={"option": (name, parse, default), "group": group}
    )


def option_names(options: type, group: str | None = None) -> tuple[str, ...]:
    """The names of the options that the fields of a dataclass declare; with ``group`` only those
    of this group."""
    return tuple(
        field.metadata["option"][0]
        for field in dataclasses.fields(options)
        if "option" in field.metadata and group in (None, field.metadata["group"])
    )


def without_effect(options: Iterable[str]) -> list[str]:
    """The given options that are accepted and ignored."""
    return [name for name in options if name.lower() in _IGNORED]


class GivenOptions:
    """The given options by lower-case name: Spark's options are not case-sensitive. Raises
    ConfigError for a name that is not in ``known``. ``elsewhere``: known options that are not for
    this ``use``."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: tuple[str, ...],
        *,
        use: Literal["reading", "writing"],
        elsewhere: tuple[str, ...],
    ) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._use = use
        accepted = {name.lower() for name in known} | _SET_BY_SPARK | _IGNORED
        others = {name.lower(): name for name in elsewhere}  # Spark hands over names in lower case
        for name in self._values:
            if name in _REJECTED:
                raise ConfigError(f"option {name} is not accepted: {_REJECTED[name]}")
            if name in accepted or name.startswith(_CLIENT):
                continue
            if name in others:
                raise self._misplaced(others[name])
            raise ConfigError(_unknown(name, known))

    def _misplaced(self, name: str) -> ConfigError:
        other = "writing" if self._use == "reading" else "reading"
        return ConfigError(
            f"option {name} is not for {self._use}: give it only where it is used, for {other}"
        )

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def present(self, names: tuple[str, ...]) -> list[str]:
        """Those of the names that are given."""
        return [name for name in names if name.lower() in self._values]

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """The parsed option, or the default. ``parse`` raises ValueError that says what is
        valid."""
        text = self.get(name)
        if text is None:
            return default
        try:
            return parse(text.strip())
        except ValueError as error:
            raise ConfigError(f"option {name}={text!r} is not accepted: {error}") from None

    def declared_by(self, options: type) -> dict[str, Any]:
        """The values of the fields that a dataclass declares with :func:`option`."""
        return {
            field.name: self.read(*field.metadata["option"])
            for field in dataclasses.fields(options)
            if "option" in field.metadata
        }

    def client(self, config: type[ClientConfig], other: type[ClientConfig]) -> dict[str, str]:
        """The ``kafka.*`` options without their prefix, validated by ``config``. ``other``: the
        options of the other direction."""
        client = {
            name.removeprefix(_CLIENT): value
            for name, value in self._values.items()
            if name.startswith(_CLIENT) and name not in _IGNORED
        }
        if not client.get("bootstrap.servers", "").strip():
            raise ConfigError("option kafka.bootstrap.servers is missing: set it to host:port,...")
        for name in sorted(client.keys() & spellings(other) - spellings(config)):
            raise self._misplaced(_CLIENT + name)
        try:
            config.build(client, {})
        except ConfigError as error:
            raise ConfigError(f"options kafka.*, here without this prefix: {error}") from error
        return client


def spellings(config: type[ClientConfig]) -> set[str]:
    """All names of the options of a client."""
    return {name for each in config.OPTIONS.values() for name in each.spellings}


def _unknown(name: str, known: tuple[str, ...]) -> str:
    full = [f"{_CLIENT}{each.kafka_name}" for each in ReaderConfig.OPTIONS.values()]
    meant = {each.lower(): each for each in known} | {each: each for each in full}
    meant |= {each.removeprefix(_CLIENT): each for each in full}
    close = difflib.get_close_matches(name, meant, n=1, cutoff=0.6)
    if close:
        return f"unknown option {name}: did you mean {meant[close[0]]}?"
    return f"unknown option {name}; the options are {', '.join(known)}, and kafka.*"
