import numpy as np
import pytest

from respool.columnar.key_table import hash_bytes

# From the authors' own vectors: the key is 00 01 … 0f, the input is 00 01 … of that length.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("length", VECTORS)
def test_the_hash_is_siphash(length: int) -> None:
    secret = np.frombuffer(bytes(range(16)), dtype=np.uint64)
    data = np.frombuffer(b"??" + bytes(range(length)) + b"??", dtype=np.uint8)
    words = np.array(hash_bytes(data, 2, 2 + length, secret), dtype=np.uint64)
    assert words.tobytes().hex() == VECTORS[length]
