from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from kafkaclient.wire import murmur2

# Java's UtilsTest.testMurmur2, and the partition of 10 and of 3 (specs/kip-794, 1.2).
VECTORS = [
    (b"21", -973932308, 0, 0),
    (b"foobar", -790332482, 6, 0),
    (b"a-little-bit-long-string", -985981536, 2, 2),
    (b"a-little-bit-longer-string", -1486304829, 9, 2),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 7, 2),
    (b"abc", 479470107, 7, 0),
]


@pytest.mark.parametrize(("key", "expected", "of_10", "of_3"), VECTORS)
def test_java_vectors(key, expected, of_10, of_3):
    assert murmur2.murmur2(key) == expected
    assert murmur2.partition_for_key(key, 10) == of_10
    assert murmur2.partition_for_key(key, 3) == of_3


@pytest.mark.parametrize("length", range(9))
def test_every_tail_length_agrees_with_the_reference(length):
    key = bytes(range(250, 250 - length, -1))
    assert murmur2.murmur2(key) & 0xFFFFFFFF == reference(key) & 0xFFFFFFFF


def test_a_key_that_is_not_ascii_is_hashed_by_its_bytes():
    key = "Ünïcödé-ключ".encode()
    assert murmur2.murmur2(key) & 0xFFFFFFFF == reference(key) & 0xFFFFFFFF


def test_the_empty_key_is_a_key():
    assert murmur2.murmur2(b"") == 275646681
    assert murmur2.partition_for_key(b"", 10) == 1


@given(st.binary(max_size=64))
def test_hash_agrees_with_the_reference(key):
    assert murmur2.murmur2(key) & 0xFFFFFFFF == reference(key) & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 2**31 - 1))
def test_partition_is_the_positive_hash_modulo_the_count(key, count):
    expected = (reference(key) & 0x7FFFFFFF) % count
    assert murmur2.partition_for_key(key, count) == expected


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_like_keys_hash_alike(kind):
    assert murmur2.murmur2(kind(b"foobar")) == -790332482
    assert murmur2.partition_for_key(kind(b"foobar"), 10) == 6


@pytest.mark.parametrize("key", ["foobar", None, 5])
def test_other_types_are_refused_by_name(key):
    with pytest.raises(TypeError, match=f"not {type(key).__name__}"):
        murmur2.murmur2(key)
    with pytest.raises(TypeError, match=f"not {type(key).__name__}"):
        murmur2.partition_for_key(key, 10)


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_has_at_least_one_partition(count):
    with pytest.raises(ValueError, match="at least 1"):
        murmur2.partition_for_key(b"key", count)
