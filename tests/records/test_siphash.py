import pytest

from respool.records.siphash import siphash

# From the authors' own vectors: the key is 00 01 … 0f, the input is 00 01 … of that length. The first word of each.
VECTORS = {
    0: "a3817f04ba25a8e6",
    1: "da87c1d86b99af44",
    8: "3b62a9ba6258f561",
    15: "5493e99933b0a811",
    63: "5150d1772f50834a",
}


@pytest.mark.parametrize("length", VECTORS)
def test_it_is_siphash(length: int) -> None:
    found = siphash(bytes(range(length)), bytes(range(16)))
    assert found.to_bytes(8, "little").hex() == VECTORS[length]
