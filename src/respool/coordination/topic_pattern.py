"""Which topics a pattern stands for, without letting a pattern cost more than the broker will spend on it.

A pattern becomes a program of single steps that can be in many places at once; which places those are is remembered, so
that a name costs one look-up per character once its like has been seen. Nothing is ever tried again, so there is no
pattern that takes exponential time, as there is with Python's `re`. What a pattern may cost is bounded twice: by the
length of its program, and by how many places are looked at over all names (`WORK_MAX`).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from respool.coordination.topic_pattern_syntax import (
    WORD,
    Chars,
    Choice,
    Node,
    Place,
    Repeat,
    Sequence,
    parse,
    shortened,
)
from respool.model.errors import InvalidRegularExpression

PROGRAM_LENGTH_MAX = 1_000
# About a tenth of a second. Patterns people write need some hundreds.
WORK_MAX = 100_000


class TopicPattern:
    """Compiles the text it is given.

    Raises:
        InvalidRegularExpression: it is no pattern, or its program would be too long.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._program = _Compiler(text).program(parse(text))
        self._work_left = WORK_MAX
        self._start = _State(frozenset((0,)), came_after="")
        # What follows a state when a character comes.
        self._steps: dict[tuple[_State, str], _State] = {}
        self._accepts: dict[_State, bool] = {}

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that the pattern matches from beginning to end.

        Raises:
            InvalidRegularExpression: finding out would be too much work.
        """
        return frozenset(name for name in names if self._matches(name))

    def _matches(self, name: str) -> bool:
        state = self._start
        steps = self._steps
        for char in name:
            following = steps.get((state, char))
            if following is None:
                following = steps[state, char] = self._step(state, char)
            if not following.places:
                return False
            state = following
        accepts = self._accepts.get(state)
        if accepts is None:
            end = len(self._program)
            accepts = self._accepts[state] = end in self._reachable(state, next_char="")
        return accepts

    def _step(self, state: "_State", char: str) -> "_State":
        places = frozenset(
            place + 1
            for place in self._reachable(state, next_char=char)
            if place < len(self._program)
            and isinstance(allowed := self._program[place], frozenset)
            and char in allowed
        )
        # Only whether it was one of a word matters of the character before.
        return _State(places, came_after="w" if char in WORD else "-")

    def _reachable(self, state: "_State", *, next_char: str) -> set[int]:
        """All places that can be come to without a character, between the one before and the next."""
        reached = set(state.places)
        waiting = list(state.places)
        while waiting:
            self._spend()
            place = waiting.pop()
            if place == len(self._program):
                continue
            following = _follow(self._program[place], place, state.came_after, next_char)
            for other in following:
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return reached

    def _spend(self) -> None:
        if self._work_left == 0:
            raise InvalidRegularExpression(
                f"the pattern {shortened(self._text)} takes too much work to match: over {WORK_MAX} steps"
            )
        self._work_left -= 1


@lru_cache(maxsize=32)
def topic_pattern(text: str) -> TopicPattern:
    """The pattern of that text; many groups use the same, and it gets faster with use.

    Raises:
        InvalidRegularExpression: it is no pattern, or its program would be too long.
    """
    return TopicPattern(text)


class _State(NamedTuple):
    places: frozenset[int]
    # "" at the start of a name, "w" after a character of a word, "-" after another.
    came_after: str


class _GoTo(NamedTuple):
    """Go on at all of these places at once, counted from here."""

    distances: tuple[int, ...]


# A character of these, then on; or only if the place is right, then on; or on elsewhere.
_Instruction: TypeAlias = frozenset[str] | Place | _GoTo


def _follow(
    instruction: _Instruction, place: int, came_after: str, next_char: str
) -> tuple[int, ...]:
    if isinstance(instruction, _GoTo):
        return tuple(place + distance for distance in instruction.distances)
    if isinstance(instruction, Place) and _is_at(instruction, came_after, next_char):
        return (place + 1,)
    return ()


def _is_at(wanted: Place, came_after: str, next_char: str) -> bool:
    match wanted:
        case Place.START:
            return came_after == ""
        case Place.END:
            return next_char == ""
        case Place.WORD_BOUNDARY | Place.NO_WORD_BOUNDARY:
            is_boundary = (came_after == "w") != (next_char in WORD)
            return is_boundary is (wanted is Place.WORD_BOUNDARY)


class _Compiler:
    def __init__(self, text: str) -> None:
        self._text = text

    def program(self, node: Node) -> list[_Instruction]:
        """The steps for a node; whoever is past the last of them has matched it."""
        match node:
            case Chars():
                return [node.allowed]
            case Place():
                return [node]
            case Sequence():
                steps: list[_Instruction] = []
                for part in node.parts:
                    steps += self.program(part)
                    self._check(steps)
                return steps
            case Choice():
                return self._choice(node)
            case Repeat():
                return self._repeat(node)

    def _choice(self, node: Choice) -> list[_Instruction]:
        # goto the branches | branch 1 | goto the end | branch 2 | goto the end | ...
        branches = [self.program(branch) for branch in node.branches]
        starts = []
        steps: list[_Instruction] = []
        length = sum(len(branch) + 1 for branch in branches)
        for branch in branches:
            starts.append(1 + len(steps))
            steps += branch
            steps.append(_GoTo((length - len(steps),)))
            self._check(steps)
        return [_GoTo(tuple(starts)), *steps]

    def _repeat(self, node: Repeat) -> list[_Instruction]:
        part = self.program(node.part)
        optional = 1 if node.high is None else node.high - node.low
        # Each repetition counts, also of nothing: else `((()*)*)*` with counts would go on for ever.
        if (node.low + optional) * (len(part) + 1) > PROGRAM_LENGTH_MAX:
            raise self._too_long()
        steps = part * node.low
        if node.high is None:
            # goto the part or the end | part | back
            steps += [_GoTo((1, len(part) + 2)), *part, _GoTo((-len(part) - 1,))]
        else:
            # goto the part or the end | part | goto the part or the end | part | ...
            for left in range(optional, 0, -1):
                steps += [_GoTo((1, left * (len(part) + 1))), *part]
        return steps

    def _check(self, steps: list[_Instruction]) -> None:
        if len(steps) > PROGRAM_LENGTH_MAX:
            raise self._too_long()

    def _too_long(self) -> InvalidRegularExpression:
        return InvalidRegularExpression(
            f"the pattern {shortened(self._text)} is too long: over {PROGRAM_LENGTH_MAX} steps"
        )
