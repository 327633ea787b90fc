"""Redis answers in two shapes, as its protocol is; both are read."""

from bench.versus.other_load import entries

ENTRY = (b"1-0", {b"value": b"x"})


def test_entries_are_found_in_every_shape_of_an_answer() -> None:
    assert entries([[b"s", [ENTRY]]], "s") == [ENTRY]
    assert entries({b"s": [[ENTRY]]}, "s") == [ENTRY]
    assert entries([], "s") == []
