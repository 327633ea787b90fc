"""The arguments of a replay, from `respool replay` and from `respool.start_replay`, checked in one place.

Both have the same arguments under names of their own; errors use those names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from respool.replay.errors import InvalidReplay
from respool.replay.request import MessageFilter, ReplayRequest
from respool.replay.time_range import TimeRange, parse_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentNames:
    """The names under which a caller gives the arguments."""

    topic: str
    since: str
    until: str
    into: str
    group: str
    resume: str


PYTHON_NAMES = ArgumentNames(
    topic="topic=", since="since=", until="until=", into="into=", group="group=", resume="resume="
)
COMMAND_NAMES = ArgumentNames(
    topic="the topic to read",
    since="--from",
    until="--to",
    into="--into TOPIC2",
    group="--group NEW",
    resume="--resume ID",
)
# In messages about the arguments of a Python call.
_TYPE_NAMES: Mapping[type, str] = {str: "text", Mapping: "a dict of names and values"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArguments:
    """None: not given."""

    topic: str | None
    # The words that identify the request, as in `ReplayRequest`.
    since: str | None
    until: str | None
    into: str | None
    group: str | None
    resume: str | None
    selection: MessageFilter
    # The names of the given arguments that make no sense beside `resume`, and of those that make none for a group.
    not_with_resume: Sequence[str]
    not_with_group: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplay:
    request: ReplayRequest
    range: TimeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedReplay:
    replay_id: str


def check_arguments(
    given: ReplayArguments, names: ArgumentNames, *, now: datetime
) -> NewReplay | ResumedReplay:
    """
    Raises:
        InvalidReplay: an argument is missing, is not a time, or contradicts another.
    """
    if given.resume is not None:
        _check_resume(given, names)
        return ResumedReplay(replay_id=given.resume)
    if given.topic is None:
        raise InvalidReplay(f"{names.topic} is missing")
    if given.since is None:
        raise InvalidReplay(f"{names.since} is missing")
    request = ReplayRequest(
        topic=given.topic,
        from_text=given.since,
        to_text="now" if given.until is None else given.until,
        into=given.into,
        group=given.group,
        selection=given.selection,
    )
    if (given.into is None) == (given.group is None):
        raise InvalidReplay(
            f"give either {names.into} or {names.group}: a topic to copy into, or a new group"
        )
    if given.group is not None and given.not_with_group:
        raise InvalidReplay(
            f"{given.not_with_group[0]} is for {names.into}, and contradicts {names.group}",
            hint="the group's consumers read all messages, as fast as they can",
        )
    wanted = parse_range(
        request.from_text,
        request.to_text,
        now=now,
        from_name=names.since.removesuffix("="),
        to_name=names.until.removesuffix("="),
    )
    return NewReplay(request=request, range=wanted)


def _check_resume(given: ReplayArguments, names: ArgumentNames) -> None:
    described = {
        names.topic: given.topic,
        names.since: given.since,
        names.until: given.until,
        names.into: given.into,
        names.group: given.group,
    }
    contradicting = [name for name, value in described.items() if value is not None]
    contradicting += given.not_with_resume
    if contradicting:
        raise InvalidReplay(
            f"{names.resume} replaces all arguments that describe the replay, and contradicts {contradicting[0]}",
            hint=f"give {names.resume} alone, or with what says how to copy: pace and compression",
        )


def check_types(given: Mapping[str, tuple[object, type | tuple[type, ...]]]) -> None:
    """Check arguments of a Python call, of which some may not have been given (None).

    Raises:
        InvalidReplay: an argument has the wrong type.
    """
    for name, (value, wanted) in given.items():
        if value is not None and not isinstance(value, wanted):
            first = wanted[0] if isinstance(wanted, tuple) else wanted
            needed = _TYPE_NAMES.get(first, f"a respool.{first.__name__}")
            raise InvalidReplay(f"{name}{value!r}: {needed} is needed")
