"""The settings of every client that the experiment compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from experiments.clients import FRANZ, JAVA, OURS
from experiments.options import words
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BASELINE", "COMPARED", "OBJECT_STORE", "PEERS", "SETTINGS", "Setting", "choose"]

Options: TypeAlias = Mapping[str, str]

_DEFAULT_LINGER_MS = 5.0


@dataclass(frozen=True, slots=True)
class Setting:
    """A client with options, which have Kafka's dotted names."""

    client: str
    name: str
    options: Options

    @property
    def linger_ms(self) -> float:
        """The linger that is set, else 5 ms, the default of the clients that it may be left to."""
        return float(self.options.get("linger.ms", _DEFAULT_LINGER_MS))

    @property
    def label(self) -> str:
        return f"{self.client}: {self.name}"


_ADAPTIVE: dict[str, Options] = {
    "adaptive": {},
    "uniform": {"partitioner.adaptive.partitioning.enable": "false"},
    "availability 5 ms": {"partitioner.availability.timeout.ms": "5"},
}

_OURS: dict[str, Options] = {
    "default": {},
    "floor 0": {"partitioner.share.floor": "0"},
    "prequal": {"partitioner": "prequal"},
    "peak-ewma": {"partitioner": "peak-ewma"},
    "linger 0": {"linger.ms": "0"},
    "late floor 0 linger 0": {"linger.ms": "0", "partitioner.share.floor": "0"},
    "uniform": {"adaptive.partitioning.enable": "false"},
    **{
        f"kip794 {name} linger {linger}": {
            "partitioner": "kip794",
            "linger.ms": str(linger),
            **options,
        }
        for linger in (0, 5, 10)
        for name, options in _ADAPTIVE.items()
    },
    **{
        f"sticky linger {linger}": {"partitioner": "sticky", "linger.ms": str(linger)}
        for linger in (0, 5)
    },
}
_JAVA: dict[str, Options] = {
    f"{name} linger {linger}": {"linger.ms": str(linger), **options}
    for linger in (0, 5, 10)
    for name, options in _ADAPTIVE.items()
}
_AIOKAFKA: dict[str, Options] = {
    f"random linger {linger}": {"linger.ms": str(linger)} for linger in (0, 5)
}
_FRANZ: dict[str, Options] = {
    f"linger {linger}": {"linger.ms": str(linger)} for linger in (0, 5, 10)
}
_CONFLUENT: dict[str, Options] = {
    **{f"linger {linger}": {"linger.ms": str(linger)} for linger in (0, 5, 10)},
    "sticky 10 ms linger 10": {"linger.ms": "10", "sticky.partitioning.linger.ms": "10"},
}


def _table(clients: Mapping[str, Mapping[str, Options]]) -> Mapping[str, tuple[Setting, ...]]:
    return {
        client: tuple(Setting(client, name, options) for name, options in settings.items())
        for client, settings in clients.items()
    }


SETTINGS = _table(
    {
        OURS: _OURS,
        JAVA: _JAVA,
        FRANZ: _FRANZ,
        "aiokafka": _AIOKAFKA,
        "confluent": _CONFLUENT,
    },
)
"""Client name -> its settings."""

_LARGE: Options = {"linger.ms": "100", "batch.size": "1000000"}
_ROOMY: Options = {**_LARGE, "buffer.memory": "268435456", "max.request.size": "8000000"}
_LARGE_CONFLUENT: Options = {**_LARGE, "sticky.partitioning.linger.ms": "100"}

OBJECT_STORE = _table(
    {
        OURS: {
            "default": {},
            "kip794": {"partitioner": "kip794"},
            "linger 100": _LARGE,
            "requests 8 MB": {"max.request.size": "8000000"},
            "large": _ROOMY,
            "large kip794": {**_ROOMY, "partitioner": "kip794"},
        },
        JAVA: {"adaptive linger 5": {"linger.ms": "5"}, "large": _ROOMY},
        FRANZ: {"linger 5": {"linger.ms": "5"}, "large": _LARGE},
        "aiokafka": {
            "random linger 5": {"linger.ms": "5"},
            "large": {**_LARGE, "max.request.size": "8000000"},
        },
        "confluent": {"linger 5": {"linger.ms": "5"}, "large": _LARGE_CONFLUENT},
    }
)
"""Client name -> its settings, if all brokers are late: the defaults, and larger batches."""

COMPARED = (
    "default,floor 0,prequal,peak-ewma,kip794 adaptive linger 5,java:adaptive linger 5,"
    f"{FRANZ}:linger 5,confluent:linger 5,aiokafka:random linger 5"
)
"""``--settings compared``: one setting of each client, and each rule of ours, all with linger 5."""

PEERS = tuple(client for client in SETTINGS if client != OURS)

BASELINE = next(found for found in SETTINGS[JAVA] if found.name == "adaptive linger 5")
"""The setting that ratios refer to: Java's producer with its defaults."""


def choose(
    peers: Sequence[str],
    patterns: str | None = None,
    settings: Mapping[str, tuple[Setting, ...]] = SETTINGS,
) -> list[Setting]:
    """The settings to measure, in an order in which clients alternate.

    ``patterns`` are names or shell patterns joined by commas, with ``client:`` before a peer's. A
    client with a pattern keeps only the settings that match. Raises ConfigError for a pattern that
    matches nothing. ``compared`` stands for :data:`COMPARED`.
    """
    if patterns == "compared":
        named = {"", *(f"{peer}:" for peer in peers)}
        patterns = ",".join(name for name in words(COMPARED) if name[: name.find(":") + 1] in named)
    chosen = {client: list(settings[client]) for client in (OURS, *peers)}
    matched: dict[str, list[Setting]] = {}
    for pattern in words(patterns or ""):
        client, _, name = pattern.rpartition(":")
        client, name = client.strip() or OURS, name.strip()
        found = [setting for setting in settings.get(client, ()) if fnmatchcase(setting.name, name)]
        if client not in chosen or not found:
            names = "; ".join(setting.label for client in chosen for setting in settings[client])
            raise ConfigError(f"--settings: nothing is named {pattern!r}; there are {names}")
        matched.setdefault(client, []).extend(found)
    for client, found in matched.items():
        chosen[client] = [setting for setting in chosen[client] if setting in found]
    return _in_turn(list(chosen.values()))


def _in_turn(groups: Sequence[Sequence[Setting]]) -> list[Setting]:
    # Each client's runs are spread over the whole time: the machine may be slower at times.
    placed = [
        ((place + 0.5) / len(group), number, setting)
        for number, group in enumerate(groups)
        for place, setting in enumerate(group)
    ]
    return [setting for _at, _number, setting in sorted(placed, key=lambda entry: entry[:2])]
