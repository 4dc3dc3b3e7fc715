"""The lock and the cache of jars, without a network."""

from __future__ import annotations

import hashlib
import io
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing.errors import JarsUnavailableError
from kafkaclient.testing.jars import (
    Jar,
    JarCache,
    parse_lock,
    read_lock,
    shipped_versions,
    show_progress,
)
from kafkaclient.testing.settings import DEFAULT_VERSION
from release.kafka_lock import format_lock

if TYPE_CHECKING:
    from pathlib import Path


def content(name: str) -> bytes:
    return name.encode() * 100


def jar(artifact: str, group: str = "org.example") -> Jar:
    data = content(artifact)
    return Jar(group, artifact, "1.0", hashlib.sha256(data).hexdigest(), len(data))


class Repository:
    """A Fetch that serves ``content`` and remembers who asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken: dict[str, list[bytes | Exception]] = {}
        self._lock = threading.Lock()

    def __call__(self, jar: Jar, directory: Path) -> Path:
        with self._lock:
            self.asked.append(jar.artifact)
            failures = self.broken.get(jar.artifact)
            outcome = failures.pop(0) if failures else content(jar.artifact)
        if isinstance(outcome, Exception):
            raise outcome
        path = directory / jar.path
        path.parent.mkdir(parents=True)
        path.write_bytes(outcome)
        return path


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def cache(tmp_path: Path, repository: Repository) -> JarCache:
    return JarCache(tmp_path, repository)


def test_fetches_what_is_missing_once(cache: JarCache, repository: Repository) -> None:
    jars = [jar("a"), jar("b"), jar("c")]
    paths = cache.ensure(jars)
    assert [path.read_bytes() for path in paths] == [content("a"), content("b"), content("c")]
    assert sorted(repository.asked) == ["a", "b", "c"]
    assert cache.ensure(jars) == paths
    assert len(repository.asked) == 3


def test_the_cache_holds_nothing_but_jars(cache: JarCache) -> None:
    cache.ensure([jar("a")])
    names = {path.name for path in cache.directory.iterdir()}
    assert names == {"jars", "jars.lock"}


def test_an_interrupted_download_goes_on_with_what_is_missing(
    cache: JarCache, repository: Repository
) -> None:
    jars = [jar("a"), jar("b")]
    repository.broken["b"] = [OSError("network is unreachable")] * 3
    with pytest.raises(JarsUnavailableError):
        cache.ensure(jars)
    repository.asked.clear()
    cache.ensure(jars)
    assert "b" in repository.asked
    assert repository.asked.count("a") <= 1


def test_offline_names_what_is_missing_where_and_what_to_do(
    cache: JarCache, repository: Repository
) -> None:
    repository.broken["a"] = [OSError("no route to host")] * 3
    with pytest.raises(JarsUnavailableError) as caught:
        cache.ensure([jar("a")])
    assert caught.value.missing == ("org.example:a:1.0",)
    message = str(caught.value)
    assert "org.example:a:1.0: no route to host" in message
    assert str(cache.directory) in message
    assert "KAFKACLIENT_MAVEN_REPOSITORY" in message


def test_a_failure_that_passes_is_tried_again(cache: JarCache, repository: Repository) -> None:
    repository.broken["a"] = [OSError("reset"), RuntimeError("not found on this mirror")]
    cache.ensure([jar("a")])
    assert repository.asked == ["a", "a", "a"]


def test_a_jar_with_other_bytes_is_refused(cache: JarCache, repository: Repository) -> None:
    repository.broken["a"] = [b"something else"] * 3
    with pytest.raises(JarsUnavailableError, match="not the jar that the lock names"):
        cache.ensure([jar("a")])
    assert not (cache.directory / "jars" / jar("a").path).exists()


def test_a_jar_cut_short_is_fetched_again(cache: JarCache, repository: Repository) -> None:
    (path,) = cache.ensure([jar("a")])
    path.write_bytes(b"short")
    cache.ensure([jar("a")])
    assert path.read_bytes() == content("a")


def test_an_error_of_ours_is_not_disguised(cache: JarCache, repository: Repository) -> None:
    repository.broken["a"] = [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        cache.ensure([jar("a")])


def test_fetching_can_be_stopped(cache: JarCache, repository: Repository) -> None:
    cache.stop_fetching()
    with pytest.raises(JarsUnavailableError, match="stopped"):
        cache.ensure([jar("a")])
    assert repository.asked == []


def test_two_at_once_fetch_once(tmp_path: Path, repository: Repository) -> None:
    jars = [jar(name) for name in "abcdef"]
    threads = [
        threading.Thread(target=JarCache(tmp_path, repository).ensure, args=(jars,))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(repository.asked) == list("abcdef")


@pytest.mark.parametrize(
    "line", ["kafka", "abc 1 g:a:v", f"{'0' * 64} x g:a:v", f"{'0' * 64} 1 g:a"]
)
def test_a_malformed_lock_names_its_line(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2 of the lock"):
        parse_lock(f"# a comment\n{line}\n")


def test_the_shipped_lock_is_a_broker_with_its_tools_and_its_logging() -> None:
    assert DEFAULT_VERSION in shipped_versions()
    jars = read_lock(DEFAULT_VERSION)
    by_name = {(item.group, item.artifact): item.version for item in jars}
    assert len(by_name) == len(jars)
    for artifact in ("kafka_2.13", "kafka-tools", "kafka-clients"):
        assert by_name["org.apache.kafka", artifact] == DEFAULT_VERSION
    for artifact in ("log4j-core", "log4j-slf4j-impl"):
        assert ("org.apache.logging.log4j", artifact) in by_name


def test_a_version_without_a_lock_says_how_to_make_one() -> None:
    with pytest.raises(ConfigError, match=r"python -m release\.kafka_lock 0\.0\.7"):
        read_lock("0.0.7")


def test_a_lock_made_by_the_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKACLIENT_CACHE", str(tmp_path))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "kafka-0.0.7.lock").write_text(format_lock("0.0.7", [jar("a")]))
    assert read_lock("0.0.7") == (jar("a"),)


# --- the progress of a download ---------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress("Fetching", 4_000_000) as advance:
        for _ in range(40):
            advance(100_000)
    assert stream.getvalue().splitlines() == [
        "Fetching, 4 MB",
        "Fetching, 25 %",
        "Fetching, 50 %",
        "Fetching, 75 %",
        "Fetching, 100 %",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress("Fetching", 1000) as advance:
        advance(1000)
    assert "Fetching" in stream.getvalue()
    assert "1.0/1.0 kB" in stream.getvalue()


def test_plain_lines_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with show_progress("Fetching", 1_000_000):
        pass
    assert stream.getvalue() == "Fetching, 1 MB\n"
