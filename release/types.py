"""``make types``: pyright knows the type of every public name, and of all its members.

``pyright --verifytypes`` takes every module without a leading underscore for public. Here the
public names are those in ``__all__`` of the modules in ``PUBLIC``, and their base classes. The exit
status is 1 if the type of one of them is not known, or only guessed from an assignment; or if
pyright sees other errors in ``typed_usage.py`` than its comments say.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

PUBLIC = (
    "kafkaclient",
    "kafkaclient.admin",
    "kafkaclient.aiokafka",
    "kafkaclient.aws",
    "kafkaclient.azure",
    "kafkaclient.errors",
    "kafkaclient.hooks",
    "kafkaclient.opentelemetry",
    "kafkaclient.prometheus",
    "kafkaclient.reader",
    "kafkaclient.schema_registry",
    "kafkaclient.spark",
    "kafkaclient.streams",
    "kafkaclient.telemetry",
    "kafkaclient.testing",
    "kafkaclient.testing.clock",
    "kafkaclient.testing.fake",
    "kafkaclient.types",
)


DERIVED = (
    "kafkaclient.testing.LocalCluster",
    "kafkaclient.testing.cluster.LocalCluster",
    "kafkaclient.testing.cluster.ClusterHandle",
)
"""They offer ``RemoteProxy``, whose methods have the signatures of ``FaultProxy`` by a decorator:
pyright knows these types, and counts what is derived as a guess."""


_USAGE = str(Path(__file__).with_name("typed_usage.py"))


def main() -> int:
    done = subprocess.run(
        ["pyright", "--verifytypes", "kafkaclient", "--ignoreexternal", "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    completeness = json.loads(done.stdout)["typeCompleteness"]
    symbols = completeness["symbols"]
    if not symbols:
        raise SystemExit(f"pyright found no symbols: {done.stdout[:500]}")
    homes = public_names()
    public = [symbol for symbol in symbols if _belongs(symbol["name"], homes)]
    unknown = [
        symbol
        for symbol in public
        if (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
        and not _belongs(symbol["name"], set(DERIVED))
    ]
    for symbol in unknown:
        sys.stdout.write(f"{symbol['name']}\n")
        for diagnostic in symbol["diagnostics"]:
            sys.stdout.write(f"    {diagnostic['message']}\n")
    known = len(public) - len(unknown)
    everything = completeness["exportedSymbolCounts"]
    sys.stdout.write(
        f"public: the types of {known} of {len(public)} symbols are known "
        f"({100 * known / len(public):.1f} %); with all internal modules: "
        f"{everything['withKnownType']} of {sum(everything.values())}\n"
    )
    usage = subprocess.run(["pyright", _USAGE], check=False).returncode
    return int(bool(unknown or usage))


def public_names() -> set[str]:
    """The full names of public objects: where they are offered, and where they are defined."""
    names = set()
    for module_name in PUBLIC:
        module = import_module(module_name)
        for name in getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"]):
            found = getattr(module, name)
            names.add(f"{module_name}.{name}")
            kinds = inspect.getmro(found) if inspect.isclass(found) else (found,)
            names |= {home for kind in kinds if (home := _home(kind)) is not None}
    return names


def _home(found: Any) -> str | None:
    module = getattr(found, "__module__", None) or ""
    if not module.startswith("kafkaclient") or not hasattr(found, "__qualname__"):
        return None
    return f"{module.replace('._', '.')}.{found.__qualname__}"


def _belongs(symbol: str, homes: set[str]) -> bool:
    return any(symbol == home or symbol.startswith(f"{home}.") for home in homes)


if __name__ == "__main__":
    sys.exit(main())
