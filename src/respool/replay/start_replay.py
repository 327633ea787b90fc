"""Starts replays: `respool.start_replay` from Python; the command line calls `start` and `resume_recorded` below."""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.records.batch import Codec
from respool.replay.arguments import (
    PYTHON_NAMES,
    ReplayArguments,
    ResumedReplay,
    check_arguments,
    check_types,
)
from respool.replay.audit import DONE, AuditEntry, AuditLog
from respool.replay.copy_plan import CopyPlan
from respool.replay.errors import InvalidReplay, ReplayNotFound, client_errors_translated
from respool.replay.group_start import start_group
from respool.replay.handle import Estimate, Replay
from respool.replay.letter_replay import letters_left
from respool.replay.pace import parse_pace
from respool.replay.repeated_request import AFTER, done_before, first_of, latest_of
from respool.replay.request import MessageFilter, ReplayRequest, recorded_filter, wanted_headers
from respool.replay.time_range import TimeRange, find_spans
from respool.replay.topic_copy import CopyOptions, Note, begin_copy, carry_out
from respool.replay.topic_lookup import describe_topic, newest_ms

When: TypeAlias = datetime | timedelta | str
Text: TypeAlias = bytes | str

_log = logging.getLogger(__name__)


def start_replay(
    topic: str | None = None,
    *,
    since: When | None = None,
    until: When | None = None,
    into: str | None = None,
    group: str | None = None,
    keys: Iterable[Text] | None = None,
    headers: Mapping[str, Text | Iterable[Text]] | None = None,
    pace: str | None = None,
    compression: str | None = None,
    resume: str | None = None,
    again: bool = False,
    bootstrap: str | Bootstrap | None = None,
    security: Security = IN_THE_CLEAR,
    on_note: Callable[[str], None] = _log.info,
) -> Replay:
    """Start a replay of a topic's history into another topic or for a new group; return while it runs.

    `since` and `until` are a datetime with a zone, a timedelta (that long ago), or text: '3 days ago',
    '2026-11-12 08:00', 'yesterday'; `since` may also be 'earliest'. The range ends before `until`, by default now.

    With `into`, messages are copied into that topic exactly once: an interrupted replay continues when it is started
    again with the same arguments, or with only `resume=ID`. A replay that is already done is not repeated, and one
    whose range has grown since is refused; `again=True` makes another copy. With `group` nothing is copied: the new
    group begins at `since`.

    `keys` and `headers` select messages: those with one of the keys, and those with every named header, with one of the
    given values. `pace` is 'max', '10x' (ten times as fast as the timestamps), '500/s', or both: '10x 500/s'.
    `compression` is 'none', 'gzip', 'snappy', 'lz4' or 'zstd'. `on_note` is called on transient errors, in the
    replay's thread.

    Raises:
        InvalidReplay: arguments contradict each other, or one is invalid.
        ReplayNotFound: there is no such topic, or no such replay to resume.
        CopiedAlready: a finished replay with the same arguments has copied a part of the range.
        GroupTaken: the group has members, or offsets that were not set by the same replay request.
        ReplayUnreachable: no broker answers.
    """
    check_types(
        {
            "topic=": (topic, str),
            "into=": (into, str),
            "group=": (group, str),
            "pace=": (pace, str),
            "compression=": (compression, str),
            "resume=": (resume, str),
            "headers=": (headers, Mapping),
            "bootstrap=": (bootstrap, (str, Bootstrap)),
            "security=": (security, Security),
        }
    )
    copies = {"keys=": keys, "headers=": headers, "pace=": pace, "compression=": compression}
    options = CopyOptions(
        pace=parse_pace(pace or "max"), codec=codec_of(compression, "compression={!r}")
    )
    arguments = ReplayArguments(
        topic=topic,
        since=None if since is None else _text_of("since", since),
        until=None if until is None else _text_of("until", until),
        into=into,
        group=group,
        resume=resume,
        selection=MessageFilter(keys=_keys(keys), headers=_headers(headers)),
        not_with_resume=["again="] if again else [],
        not_with_group=[name for name, value in copies.items() if value is not None],
    )
    checked = check_arguments(arguments, PYTHON_NAMES, now=datetime.now(UTC))
    with client_errors_translated():
        cluster = Cluster(bootstrap, client_id="respool-replay", security=security)
    if isinstance(checked, ResumedReplay):
        return resume_recorded(
            cluster, checked.replay_id, arguments.selection, options, on_note=on_note
        )
    return start(cluster, checked.request, checked.range, options, again=again, on_note=on_note)


def start(
    cluster: Cluster,
    request: ReplayRequest,
    wanted: TimeRange,
    options: CopyOptions,
    *,
    again: bool,
    on_note: Note,
) -> Replay:
    """Start the requested replay, or continue the last one with the same request. The replay closes the cluster.

    Raises:
        ReplayError: it cannot be started.
    """
    try:
        audit = AuditLog(cluster)
        if request.group is not None:
            before = latest_of(audit.in_log_order(), request)
            spans = find_spans(cluster, request.topic, wanted)
            begun = start_group(cluster, audit, request, spans, wanted, before=before, again=again)
            return Replay(
                cluster,
                begun.entry,
                begun.spans,
                work=None,
                is_resumed=begun.was_done,
                messages_left=begun.messages_left,
            )
        entry, is_resumed = _begin_or_join(
            cluster, audit, request, wanted, again=again, on_note=on_note
        )
        if entry.state == DONE:
            return _done(cluster, entry)
        return _running(
            cluster,
            audit,
            entry,
            selection=request.selection,
            options=options,
            is_resumed=is_resumed,
            on_note=on_note,
        )
    except BaseException:
        cluster.close()
        raise


def _begin_or_join(
    cluster: Cluster,
    audit: AuditLog,
    request: ReplayRequest,
    wanted: TimeRange,
    *,
    again: bool,
    on_note: Note,
) -> tuple[AuditEntry, bool]:
    """The entry of the replay to carry out, and whether it was begun earlier or by another starter."""
    entries = audit.in_log_order()
    before = latest_of(entries, request)
    if before is not None and before.state != DONE and not again:
        return before, True
    if request.letters is not None:
        spans = letters_left(cluster, request, () if again else entries)
        if before is not None and not any(span.messages for span in spans.values()):
            return before, True
    else:
        spans = find_spans(cluster, request.topic, wanted)
        if not again and (done := done_before(entries, request, spans)) is not None:
            return done, True
    marks = {} if again else {AFTER: None if before is None else before.id}
    with client_errors_translated():
        entry = begin_copy(cluster, audit, request, spans, wanted, marks=marks, on_note=on_note)
    if again:
        return entry, False
    first = first_of(audit.in_log_order(), request, entry)
    if first.id == entry.id:
        return entry, False
    audit.remove(entry.id)
    return first, True


def resume_recorded(
    cluster: Cluster,
    replay_id: str,
    given: MessageFilter,
    options: CopyOptions,
    *,
    on_note: Note,
) -> Replay:
    """Continue a recorded replay into a topic. The replay closes the cluster.

    Raises:
        ReplayError: no replay has this id, or it was started with another filter than `given`.
    """
    try:
        audit = AuditLog(cluster)
        entry = _recorded(audit, replay_id)
        if entry.state == DONE:
            return _done(cluster, entry)
        selection = recorded_filter(replay_id, entry.details["wish"], given)
        return _running(
            cluster,
            audit,
            entry,
            selection=selection,
            options=options,
            is_resumed=True,
            on_note=on_note,
        )
    except BaseException:
        cluster.close()
        raise


def _recorded(audit: AuditLog, replay_id: str) -> AuditEntry:
    entry = audit.entries().get(replay_id)
    if entry is None or "plan" not in entry.details:
        raise ReplayNotFound(
            f"there is no replay {replay_id!r} into a topic", hint="see: respool replay list"
        )
    return entry


def _done(cluster: Cluster, entry: AuditEntry) -> Replay:
    plan = CopyPlan.from_document(entry.details["plan"])
    return Replay(cluster, entry, plan.spans, work=None, is_resumed=True)


def _running(
    cluster: Cluster,
    audit: AuditLog,
    entry: AuditEntry,
    *,
    selection: MessageFilter,
    options: CopyOptions,
    is_resumed: bool,
    on_note: Note,
) -> Replay:
    plan = CopyPlan.from_document(entry.details["plan"])
    return Replay(
        cluster,
        entry,
        plan.spans,
        work=lambda control, on_progress: carry_out(
            cluster,
            audit,
            entry,
            control,
            selection=selection,
            options=options,
            on_progress=on_progress,
            on_note=on_note,
        ),
        estimate=_estimate(cluster, entry, plan, options),
        is_resumed=is_resumed,
    )


def _estimate(
    cluster: Cluster, entry: AuditEntry, plan: CopyPlan, options: CopyOptions
) -> Estimate:
    # The replay does not wait for messages newer than the newest one.
    with client_errors_translated():
        newest = newest_ms(cluster, describe_topic(cluster, plan.topic))
    until_ms = min(int(entry.details["to_ms"]), newest)

    def estimate(left: int, per_second: float, timestamp_ms: int) -> float | None:
        return options.pace.seconds_left(
            messages=left, per_second=per_second, timestamp_ms=timestamp_ms, until_ms=until_ms
        )

    return estimate


# -- arguments ---------------------------------------------------------------------------------------------------------


def _text_of(name: str, value: When) -> str:
    """The words that identify a request; for a timedelta they are relative, as '3 days ago' is."""
    match value:
        case str():
            return value
        case timedelta():
            milliseconds = value // timedelta(milliseconds=1)
            if milliseconds < 0:
                raise InvalidReplay(
                    f"{name}={value!r} is in the future; a timedelta is how long ago"
                )
            return f"{milliseconds} ms ago"
        case datetime():
            if value.utcoffset() is None:
                raise InvalidReplay(
                    f"{name}={value.isoformat()} has no zone",
                    hint="add one: datetime(..., tzinfo=UTC)",
                )
            return value.astimezone(UTC).isoformat()
    raise InvalidReplay(
        f"{name}={value!r} is not a time", hint="give a datetime with a zone, a timedelta, or text"
    )


def _keys(keys: Iterable[Text] | None) -> frozenset[bytes] | None:
    if keys is None:
        return None
    found = frozenset(_bytes("keys", key) for key in _each("keys", keys))
    if not found:
        raise InvalidReplay("keys= is empty", hint="leave it out to copy all messages")
    return found


def _headers(
    headers: "Mapping[str, Text | Iterable[Text]] | None",
) -> Mapping[str, frozenset[bytes]] | None:
    if headers is None:
        return None
    if odd := [name for name in headers if not isinstance(name, str)]:
        raise InvalidReplay(f"headers= has the name {odd[0]!r}: a header's name is text")
    pairs = [
        (name, _bytes("headers", value))
        for name, values in headers.items()
        for value in _each("headers", values)
    ]
    found = wanted_headers(pairs)
    if found is None or set(found) != set(headers):
        raise InvalidReplay(
            "headers= names no value", hint="give {name: value} or {name: [value, ...]}"
        )
    return found


def _each(name: str, values: Text | Iterable[Text]) -> Iterable[Text]:
    if isinstance(values, str | bytes):
        return [values]
    if isinstance(values, Iterable):
        return values
    raise InvalidReplay(f"{name}= has {values!r}: text or bytes are needed, one or several")


def _bytes(name: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise InvalidReplay(f"{name}= has {value!r}: text or bytes are needed")


def codec_of(name: str | None, argument: str) -> Codec:
    """Return the codec; `argument` is the form in which the caller gave it.

    Raises:
        InvalidReplay: there is no such codec.
    """
    names = [one.name.lower() for one in Codec]
    if name is not None and name not in names:
        raise InvalidReplay(f"{argument.format(name)} is not one of {', '.join(names)}")
    return Codec[(name or "none").upper()]
