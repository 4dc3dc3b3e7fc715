"""The machine and the versions with which something was measured."""

from __future__ import annotations

import asyncio
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["cluster_facts", "machine_facts", "machine_sentence"]

_PACKAGES = ("kafkaclient", "aiokafka", "confluent-kafka", "uvloop")
_CPUINFO = Path("/proc/cpuinfo")


def machine_facts(**versions: str) -> dict[str, Any]:
    """Facts as plain JSON values; ``versions`` adds software that is no Python package."""
    return {
        "cpus": os.cpu_count(),
        "cpu_model": _cpu_model(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            **{name: found for name in _PACKAGES if (found := _version(name)) is not None},
            **versions,
        },
    }


async def cluster_facts(cluster: ClusterHandle) -> dict[str, Any]:
    """The facts with the versions of the cluster's Kafka and Java."""
    java = await asyncio.to_thread(find_java)
    return machine_facts(kafka=cluster.version, java=java.banner.splitlines()[0])


def machine_sentence(facts: Mapping[str, Any]) -> str:
    """The facts as a sentence without a full stop."""
    names = {"python": "Python", "kafka": "Kafka", "java": "Java"}
    versions = ", ".join(
        f"{names.get(name, name)} {found}" for name, found in facts["versions"].items()
    )
    hardware = [f"{facts['cpus']} CPUs"]
    if facts["cpu_model"]:
        hardware.append(str(facts["cpu_model"]))
    if facts["memory_gb"]:
        hardware.append(f"{facts['memory_gb']:g} GB")
    return (
        f"{facts['system']}, {', '.join(hardware)}, shared by the brokers, the proxies and the "
        f"producer; {versions}"
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        lines = _CPUINFO.read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, None)


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (ValueError, OSError):
        return None
