"""Stores: flushed writes survive, changes are atomic, disk errors raise."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import StateStoreError, StreamsError
from kafkaclient.streams.runtime.task_store import RocksStore
from tests.streams.fakes import bytes_store

if TYPE_CHECKING:
    from pathlib import Path


def test_flushed_writes_survive(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "s")
    store.apply([(b"b", b"2"), (b"a", b"1"), (b"c", b"3"), (b"b", None), (b"", b"\0")])
    store.flush(1)
    store.close()
    store = RocksStore(tmp_path / "s")
    assert list(store.items()) == [(b"", b"\0"), (b"a", b"1"), (b"c", b"3")]
    assert list(store.items(b"b")) == [(b"c", b"3")]
    assert (store.get(b"a"), store.get(b"b")) == (b"1", None)
    store.close()


def test_the_error_names_a_damaged_store(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "s")
    store.close()
    (tmp_path / "s" / "CURRENT").write_text("x")
    with pytest.raises(StateStoreError, match=r"/s cannot be opened: .*CURRENT"):
        RocksStore(tmp_path / "s")


def test_a_full_disk_raises_and_loses_no_data(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    script = """
import os, pathlib, resource, sys, time
from kafkaclient.errors import StateStoreError
from kafkaclient.streams.state_directory import UNKNOWN_CHANGELOG, Checkpoint
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.streams.runtime.task_store import RocksStore
from kafkaclient.streams.tasks import TaskId
directory = StateDirectory(pathlib.Path(sys.argv[1]), float).task(TaskId(0, 0)).store("s")
directory.load_or_wipe(UNKNOWN_CHANGELOG, time.time())
store = RocksStore(directory.rocksdb)
store.apply([(b"kept", b"1")])
store.flush(1)
directory.write_checkpoint(Checkpoint(1, None, time.time()))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    while True:
        store.apply((os.urandom(8), os.urandom(100)) for _ in range(5000))
        store.flush(1)
except StateStoreError as error:
    print(error)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "File too large" in done.stdout
    assert "Free disk space" in done.stdout
    store = RocksStore(tmp_path / "0_0" / "s" / "rocksdb")
    assert store.get(b"kept") == b"1"
    store.close()


def test_writes_are_visible_at_once_and_kept_only_when_committed(tmp_path: Path) -> None:
    rocks = RocksStore(tmp_path / "s")
    store = bytes_store(rocks)
    store[b"a"] = b"1"
    store.commit()
    assert (store.get(b"a"), rocks.get(b"a")) == (b"1", None), "the record may still fail"
    store.mark()
    store.commit()
    assert (rocks.get(b"a"), store.changes) == (b"1", {})
    store.delete(b"a")
    assert store.get(b"a") is None
    store.close()
    with pytest.raises(StreamsError, match="taken away"):
        store.get(b"a")
    store = bytes_store(rocks)
    assert store.get(b"a") == b"1"
    for key, value in (("a", b"1"), (b"a", 1), (b"a", None)):
        with pytest.raises(TypeError, match="is given for bytes"):
            store[key] = value  # type: ignore[index, assignment]
    with pytest.raises(TypeError, match="None is given for bytes"):
        store.get(None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="type str is given for bytes"):
        store.items("a")  # type: ignore[arg-type]
    rocks.close()


keys = st.binary(max_size=2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.binary(max_size=2)),
        st.tuples(st.just("put"), keys, st.none()),
        st.tuples(
            st.sampled_from(["commit", "close", "mark", "roll_back"]), st.just(b""), st.none()
        ),
        st.tuples(st.just("range"), keys, keys),
    ),
    max_size=30,
)


@given(steps=steps)
def test_a_store_is_a_sorted_dictionary_with_commits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, bytes | None]]
) -> None:
    rocks = RocksStore(tmp_path_factory.mktemp("model") / "s")
    store = bytes_store(rocks)
    settled: dict[bytes, bytes] = {}
    seen: dict[bytes, bytes] = {}
    marked: dict[bytes, bytes] = {}
    """What the store was at the last mark: a commit contains this, and nothing later."""
    for what, key, value in steps:
        if what == "put":
            seen.pop(key, None)
            if value is None:
                store.delete(key)
            else:
                store[key] = seen[key] = value
        elif what == "commit":
            store.commit()
            settled = dict(marked)
        elif what == "close":
            store.close()
            store = bytes_store(rocks)
            seen, marked = dict(settled), dict(settled)
        elif what == "mark":
            store.mark()
            marked = dict(seen)
        elif what == "roll_back":
            store.roll_back()
            seen = dict(marked)
        else:
            assert value is not None
            expected = sorted(item for item in seen.items() if key <= item[0] < value)
            assert list(store.items(key, value)) == expected
        assert store.get(key) == seen.get(key)
    assert list(store.items()) == sorted(seen.items())
    assert list(rocks.items()) == sorted(settled.items())
    rocks.close()


def test_a_store_knows_which_record_wrote_a_large_value(tmp_path: Path) -> None:
    rocks = RocksStore(tmp_path / "s")
    store = bytes_store(rocks)
    store[b"k"] = bytes(5_000)
    store[b"small"] = b""
    store.mark(1)
    store[b"other"] = bytes(5_000)
    store.mark(2)
    store[b"k"] = bytes(5_000)
    store.roll_back()
    store.mark(3)
    assert [store.writer(key) for key in (b"k", b"other", b"small")] == [1, 2, None]
    store[b"k"] = bytes(6_000)
    store.commit()
    assert store.writer(b"other") is None
    store.mark(4)
    assert store.writer(b"k") == 4
    rocks.close()
