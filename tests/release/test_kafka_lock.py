"""Lock files of Kafka versions, without Maven."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from kafkaclient.testing.jars import Jar, parse_lock
from release import kafka_lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def jar(artifact: str, group: str = "org.example") -> Jar:
    return Jar(group, artifact, "1.0", hashlib.sha256(artifact.encode()).hexdigest(), len(artifact))


@pytest.mark.parametrize(
    ("slf4j", "core", "bridge"),
    [
        ("1.7.36", None, "log4j-slf4j-impl:2.25.4"),
        ("1.7.36", "2.24.0", "log4j-slf4j-impl:2.24.0"),
        ("2.0.16", "2.24.0", "log4j-slf4j2-impl:2.24.0"),
    ],
)
def test_every_broker_logs_through_log4j_2(
    slf4j: str, core: str | None, bridge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Kafka 3 the poms bring another binding, later ones none."""

    def resolve(roots: Sequence[tuple[str, str, str]], _maven: str) -> list[Jar]:
        found = [*roots, ("org.slf4j", "slf4j-api", slf4j)]
        if core is not None:
            found.append(("org.apache.logging.log4j", "log4j-core", core))
        if slf4j.startswith("1."):
            found.append(("org.slf4j", "slf4j-reload4j", slf4j))
        return [Jar(*names, "0" * 64, 1) for names in found]

    monkeypatch.setattr(kafka_lock, "_resolve", resolve)
    names = [jar.coordinates for jar in parse_lock(kafka_lock.make_lock("3.9.2", "mvn"))]
    assert f"org.apache.logging.log4j:{bridge}" in names
    assert not any("reload4j" in name for name in names)
    assert "org.apache.kafka:kafka_2.13:3.9.2" in names


def test_a_lock_survives_writing_and_reading() -> None:
    jars = [jar("z"), jar("kafka-clients", "org.apache.kafka"), jar("a")]
    again = parse_lock(kafka_lock.format_lock("4.3.1", jars))
    assert set(again) == set(jars)
    assert [item.artifact for item in again] == ["kafka-clients", "a", "z"]


def test_scan_reads_maven_s_layout(tmp_path: Path) -> None:
    expected = jar("thing", "org.example.deep")
    path = tmp_path / expected.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"thing")
    assert kafka_lock.scan(tmp_path) == [expected]
