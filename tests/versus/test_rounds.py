"""Turns: everybody once in every round, and nobody always first."""

from bench.versus.rounds import turns


def test_contenders_take_turns_and_each_round_begins_with_another() -> None:
    assert list(turns("ABC", rounds=3)) == [
        (1, "A"), (1, "B"), (1, "C"),
        (2, "B"), (2, "C"), (2, "A"),
        (3, "C"), (3, "A"), (3, "B"),
    ]  # fmt: skip


def test_more_rounds_than_contenders_begin_again_with_the_first() -> None:
    assert [one for _, one in turns("AB", rounds=3)] == ["A", "B", "B", "A", "A", "B"]
