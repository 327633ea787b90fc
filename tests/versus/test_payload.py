"""Messages have exactly the size that a row names."""

import json
from pathlib import Path

import pytest
from bench.versus.payload import payloads, write_payloads


@pytest.mark.parametrize("size", [100, 1024])
def test_every_message_has_its_size_in_bytes_and_is_json(size: int) -> None:
    texts = payloads(size, count=200)
    assert {len(text.encode()) for text in texts} == {size}
    assert all(json.loads(text)["city"] for text in texts)
    assert len(set(texts)) == 200


def test_messages_are_the_same_in_every_run(tmp_path: Path) -> None:
    path = write_payloads(tmp_path, 100)
    assert path.read_text().splitlines()[:5] == payloads(100)[:5]


def test_a_size_too_small_for_a_ride_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit into 20 bytes"):
        payloads(20)
