"""Whose turn it is. Contenders take turns within every round, and every round begins with another one of them.

A broker that runs after a heavy writer finds a busy disk and a warm machine; over the rounds everybody does.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def turns(contenders: Sequence[T], *, rounds: int) -> Iterator[tuple[int, T]]:
    """The number of the round, from 1, and who is next."""
    for number in range(rounds):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            yield number + 1, contender
