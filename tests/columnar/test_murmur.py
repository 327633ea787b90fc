from random import Random

import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from respool.columnar.errors import ColumnTypeMismatch
from respool.columnar.murmur import murmur2, murmur2_partitions

# From Kafka's own test of its hash.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_the_hash_is_javas(key: bytes) -> None:
    data = np.frombuffer(b"?" + key + b"?", dtype=np.uint8)
    assert np.int32(np.uint32(murmur2(data, 1, len(key)))) == VECTORS[key]


@pytest.mark.parametrize("partitions", [1, 2, 12, 1000])
def test_a_hundred_thousand_keys_go_where_kafka_python_sends_them(partitions: int) -> None:
    rng = Random(partitions)
    keys = [rng.randbytes(rng.randrange(24)) for _ in range(100_000 // 4)]
    expected = [(murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert murmur2_partitions(pa.array(keys), partitions).tolist() == expected


def test_a_null_key_may_go_anywhere() -> None:
    keys = pa.array(["a", None, "b"])
    assert murmur2_partitions(keys, 1).tolist() == [0, -1, 0]
    assert murmur2_partitions(keys[1:2], 5).tolist() == [-1]
    assert murmur2_partitions(pa.nulls(2), 5).tolist() == [-1, -1]


def test_a_key_goes_to_the_same_partition_whatever_its_type() -> None:
    texts = ["ride-1", None, "ride-2", "ride-1", "", "a long one that is not kept in a view"]
    plain = pa.array(texts)
    expected = murmur2_partitions(plain, 7).tolist()
    for other in (
        plain.cast(pa.large_binary()),
        plain.cast(pa.string_view()),
        plain.dictionary_encode(),
        pa.chunked_array([plain[:2], plain[2:]]),
    ):
        assert murmur2_partitions(other, 7).tolist() == expected
    assert len(murmur2_partitions(pa.chunked_array([], pa.string()), 7)) == 0


def test_keys_that_are_no_bytes_are_an_error() -> None:
    with pytest.raises(ColumnTypeMismatch, match="the column key is int64"):
        murmur2_partitions(pa.array([1]), 3)
