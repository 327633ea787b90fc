"""Matches topic names with a regular expression, within a bounded amount of work.

A pattern is compiled to a nondeterministic automaton. Its sets of states are cached, so that a name costs one look-up
per character once similar names have been matched. There is no backtracking, so that no pattern takes exponential
time, as some do with Python's `re`. The cost is bounded by the length of the program and by the number of states
visited over all names (`WORK_MAX`).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from respool.coordination.topic_patterns.pattern_characters import WORD
from respool.coordination.topic_patterns.pattern_syntax import (
    Assertion,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence,
    parse,
    shortened,
)
from respool.model.coordinator_errors import InvalidRegularExpression

# Enough for a long list of alternatives: librdkafka sends a consumer's whole subscription as one pattern.
PROGRAM_LENGTH_MAX = 4_096
# Some hundredths of a second. Usual patterns take some hundred steps, a hundred alternatives take ten thousand.
WORK_MAX = 50_000


class TopicPattern:
    """Compiles a pattern.

    Raises:
        InvalidRegularExpression: the pattern is invalid, or its program would be too long.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._program = _Compiler(text).program(parse(text))
        self._work_left = WORK_MAX
        # All states reached so far, without duplicates.
        self._states: dict[tuple[frozenset[int], str], _MatchState] = {}
        self._start = self._state(frozenset((0,)), "")

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match the pattern as a whole.

        Raises:
            InvalidRegularExpression: matching takes too much work.
        """
        return frozenset(name for name in names if self._matches(name))

    def _matches(self, name: str) -> bool:
        state = self._start
        for char in name:
            following = state.following.get(char)
            if following is None:
                following = state.following[char] = self._step(state, char)
            if not following.places:
                return False
            state = following
        return self._ahead(state, "").is_match

    def _step(self, state: "_MatchState", char: str) -> "_MatchState":
        came_after = "w" if char in WORD else "-"
        takers = self._ahead(state, came_after).takers
        self._spend(len(takers))
        taken = frozenset(place + 1 for place, allowed in takers if char in allowed)
        return self._state(taken, came_after)

    def _state(self, places: frozenset[int], came_after: str) -> "_MatchState":
        state = self._states.get((places, came_after))
        if state is None:
            state = self._states[places, came_after] = _MatchState(places, came_after)
        return state

    def _ahead(self, state: "_MatchState", comes_next: str) -> "_Ahead":
        ahead = state.ahead.get(comes_next)
        if ahead is None:
            ahead = state.ahead[comes_next] = self._reach(state, comes_next)
        return ahead

    def _reach(self, state: "_MatchState", comes_next: str) -> "_Ahead":
        """Follow all transitions that consume no character, between the previous and the next one."""
        end = len(self._program)
        takers = []
        reached = set(state.places)
        waiting = list(state.places)
        while waiting:
            self._spend(1)
            place = waiting.pop()
            if place == end:
                continue
            instruction = self._program[place]
            if isinstance(instruction, frozenset):
                takers.append((place, instruction))
                continue
            following = _follow(instruction, place, state.came_after, comes_next)
            new = [other for other in following if other not in reached]
            reached.update(new)
            waiting += new
        return _Ahead(takers, end in reached)

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise InvalidRegularExpression(
                f"the pattern {shortened(self._text)} takes too much work to match: over {WORK_MAX} steps"
            )


@lru_cache(maxsize=64)
def topic_pattern(text: str) -> TopicPattern:
    """The cached pattern of a text: many groups use the same one, and its cache of states grows with use.

    Raises:
        InvalidRegularExpression: the pattern is invalid, or its program would be too long.
    """
    return TopicPattern(text)


class _MatchState:
    """The program positions reachable by some characters of a name, with the transitions known so far."""

    __slots__ = ("ahead", "came_after", "following", "places")

    def __init__(self, places: frozenset[int], came_after: str) -> None:
        self.places = places
        # "" at the start of a name, "w" after a word character, "-" after another one; `_Ahead` uses the same for the
        # next.
        self.came_after = came_after
        # The next state for each character.
        self.following: dict[str, _MatchState] = {}
        # Reachable positions, by whether the next character is a word character, another one, or missing.
        self.ahead: dict[str, _Ahead] = {}


class _Ahead(NamedTuple):
    # Positions that consume a character, and the characters they accept.
    takers: list[tuple[int, frozenset[str]]]
    # True if the pattern matches up to here.
    is_match: bool


class _GoTo(NamedTuple):
    """Continue at all of these positions, relative to this one."""

    distances: tuple[int, ...]


# Consume one of these characters; or continue if the assertion holds; or jump.
_Instruction: TypeAlias = frozenset[str] | Assertion | _GoTo


def _follow(
    instruction: Assertion | _GoTo, place: int, came_after: str, comes_next: str
) -> tuple[int, ...]:
    if isinstance(instruction, _GoTo):
        return tuple(place + distance for distance in instruction.distances)
    return (place + 1,) if _is_at(instruction, came_after, comes_next) else ()


def _is_at(wanted: Assertion, came_after: str, comes_next: str) -> bool:
    match wanted:
        case Assertion.START:
            return came_after == ""
        case Assertion.END:
            return comes_next == ""
        case Assertion.WORD_BOUNDARY | Assertion.NO_WORD_BOUNDARY:
            is_boundary = (came_after == "w") != (comes_next == "w")
            return is_boundary is (wanted is Assertion.WORD_BOUNDARY)


class _Compiler:
    def __init__(self, text: str) -> None:
        self._text = text

    def program(self, node: Node) -> list[_Instruction]:
        """Compile a node: after the last instruction, the node has matched."""
        match node:
            case Chars():
                return [node.allowed]
            case Assertion():
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
        # Count every repetition, even of an empty part: otherwise `((()*)*)*` with counts would not terminate.
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
