"""Kafka's text for a UUID."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.uuid_text import uuid_from_text, uuid_to_text


def test_the_text_is_kafkas() -> None:
    # The metadata topic's id, a constant in Kafka.
    assert uuid_to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(UUID(int=2**128 - 1)) == "_____________________w"


@given(st.uuids())
def test_what_was_written_is_read(uuid: UUID) -> None:
    assert uuid_from_text(uuid_to_text(uuid)) == uuid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAQA",
        "AAAAAAAAAAAAAAAAAAAAAQ==",
        "AAAAAAAAAAAAAAAAAAAAAR",
        "AAAAAAAAAA+AAAAAAAAAAQ",
        "AAAAAAAAAA AAAAAAAAAAQ",
        "AAAAAAAAAAäAAAAAAAAAAQ",
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (a UUID|how)"):
        uuid_from_text(text)
