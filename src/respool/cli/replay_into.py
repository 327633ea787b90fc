"""`respool replay … --into TOPIC2`: begin a copy, or find the one that was begun, and see it to its end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import typer

from respool.cli import output
from respool.cli.audit import DONE, FAILED, INTERRUPTED, RUNNING, Act, Audit
from respool.cli.errors import ExitCode, TopicExists
from respool.cli.interrupts import noticing_ctrl_c
from respool.cli.kafka import Cluster, TopicInfo, offline
from respool.cli.replay_copy import ReplayCopy
from respool.cli.replay_pace import Pace
from respool.cli.replay_plan import CopyPlan, Span, Wish
from respool.cli.replay_position import Position
from respool.cli.replay_range import TimeRange
from respool.cli.replay_run import CopyJob, Progress
from respool.cli.replay_writer import new_producer_ids
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.topic_config import OF_ITSELF
from respool.records.batch import Codec

NOTE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How fast and how packed; it may be another when a replay goes on."""

    pace: Pace
    codec: Codec
    as_json: bool


class ReplayInto:
    """Replays into topics of a cluster."""

    def __init__(self, cluster: Cluster, audit: Audit, manner: Manner) -> None:
        self._cluster = cluster
        self._audit = audit
        self._manner = manner

    def begin(self, wish: Wish, spans: Mapping[int, Span], span_of_time: TimeRange) -> Act:
        """Fix what is to be copied, and record it."""
        assert wish.into is not None
        source = self._cluster.topic(wish.topic)
        into = self._target(wish.into, like=source)
        ranges = self._cluster.ranges([into])
        producers = new_producer_ids(self._cluster, len(spans))
        plan = CopyPlan(
            topic=wish.topic,
            into=wish.into,
            spans=spans,
            producers=dict(zip(spans, producers, strict=True)),
            source_count=len(source.leaders),
            target_ends={number: ranges[into.name, number].end for number in into.partitions},
        )
        act = Act.begin(
            kind="replay",
            source=wish.topic,
            target=wish.into,
            from_text=span_of_time.from_text,
            to_text=span_of_time.to_text,
            details={
                "fingerprint": wish.fingerprint,
                "wish": wish.to_document(),
                "to_ms": span_of_time.to_ms,
                "plan": plan.to_document(),
                "checkpoint": None,
            },
        )
        self._audit.write(act)
        return act

    def carry_out(self, act: Act, *, keys: frozenset[bytes] | None) -> None:
        """Copy what is left, and record how it ended."""
        plan = CopyPlan.from_document(act.details["plan"])
        position = Position.from_document(plan, act.details["checkpoint"])
        began = time.monotonic()
        if act.state != RUNNING:
            act = act.now(state=RUNNING, outcome="")
            self._audit.write(act)
        output.note(
            f"replay {act.id}: {output.counted(plan.messages, 'message')} of {plan.topic} from {act.from_text} to "
            f"{act.to_text}, into {plan.into}",
            style="dim",
        )
        try:
            with noticing_ctrl_c() as ctrl_c, self._shown(act, plan) as on_progress:
                job = CopyJob(
                    cluster=self._cluster,
                    plan=plan,
                    replay_id=act.id,
                    keys=keys,
                    pace=self._manner.pace,
                    codec=self._manner.codec,
                    oldest_ms=self._oldest_ms(plan.into),
                    on_progress=on_progress,
                    on_checkpoint=lambda at: self._audit.write(_at(act, at)),
                )
                position = ReplayCopy(job).run(position, ctrl_c)
        except OperatorError as error:
            # The broker may be away; then the record stays as it is, which says that it did not end.
            with suppress(OperatorError):
                self._audit.write(act.now(state=FAILED, outcome=error.message))
            hint = f"{error.hint}; " if error.hint else ""
            goes_on = f"started again the same way, or with --resume {act.id}, it goes on"
            raise type(error)(error.message, hint=hint + goes_on) from error
        self._end(_at(act, position), position, seconds=time.monotonic() - began)

    def _end(self, act: Act, position: Position, *, seconds: float) -> None:
        copied = output.counted(position.copied, "message")
        if position.is_complete:
            act = act.now(state=DONE, outcome=f"{copied} copied")
        else:
            act = act.now(state=INTERRUPTED, outcome=f"stopped with {copied} copied")
        self._audit.write(act)
        if self._manner.as_json:
            output.print_json(
                {
                    "id": act.id,
                    "state": act.state,
                    "messages": position.copied,
                    "into": act.target,
                    "seconds": round(seconds, 3),
                }
            )
        if position.is_complete:
            output.note(f"replay {act.id} is done: {copied} in {act.target}")
            return
        output.note(
            f"replay {act.id} was interrupted: {copied} in {act.target}; started again the same way, or with "
            f"--resume {act.id}, it goes on"
        )
        raise typer.Exit(ExitCode.INTERRUPTED)

    @contextmanager
    def _shown(self, act: Act, plan: CopyPlan) -> "Iterator[Any]":
        """A bar with rate and time left on a terminal; elsewhere a line now and then."""
        began = said_at = time.monotonic()
        first: int | None = None
        shown = 0
        # Nothing that is younger than the newest message has to be waited for.
        newest_ms = self._cluster.newest_ms(self._cluster.topic(plan.topic))
        until_ms = min(int(act.details["to_ms"]), newest_ms)
        title = f"{plan.topic} → {plan.into}"
        with output.progress(title, total=plan.messages, unit="messages") as bar:

            def on_progress(progress: Progress) -> None:
                nonlocal first, shown, said_at
                now = time.monotonic()
                if first is None:
                    first = progress.done
                per_second = (progress.done - first) / max(now - began, 0.001)
                left = self._manner.pace.seconds_left(
                    messages=plan.messages - progress.done,
                    per_second=per_second,
                    timestamp_ms=progress.timestamp_ms,
                    until_ms=until_ms,
                )
                rate = f"{per_second:,.0f}/s, {clock_text(left)} left"
                bar.advance(progress.done - shown)
                shown = progress.done
                bar.describe(f"{title}  {rate}")
                if not output.is_error_terminal() and now - said_at >= NOTE_SECONDS:
                    said_at = now
                    output.note(f"{title}: {progress.done:,} of {plan.messages:,}, {rate}")

            yield on_progress

    def _target(self, name: str, *, like: TopicInfo) -> TopicInfo:
        """The topic to write to; made with the source's partitions and settings when it is not there."""
        if name == like.name:
            raise UsageError(
                "a topic is not replayed into itself: everyone who reads it would read the copies",
                hint="name another topic with --into",
            )
        if name not in self._cluster.topics():
            own = {
                setting.name: setting.value
                for setting in self._cluster.settings([like.name])[like.name]
                if setting.source == "topic" and setting.name not in OF_ITSELF
            }
            with suppress(TopicExists):
                self._cluster.create_topic(name, partitions=len(like.leaders), settings=own)
                partitions = output.counted(len(like.leaders), "partition")
                output.note(f"created {name} with {partitions}, and with {like.name}'s settings")
        into = self._cluster.topic(name)
        unled = [number for number, leader in into.leaders.items() if leader is None]
        if unled:
            raise offline(self._cluster, into, unled[0])
        return into

    def _oldest_ms(self, name: str) -> int | None:
        settings = {each.name: each.value for each in self._cluster.settings([name])[name]}
        kept_ms = int(settings.get("retention.ms", -1))
        if kept_ms < 0 or "delete" not in settings.get("cleanup.policy", "delete"):
            return None
        return int(time.time() * 1000) - kept_ms


def latest(acts: Sequence[Act], wish: Wish) -> Act | None:
    """The last replay that was asked for in the same words."""
    alike = [act for act in acts if act.details.get("fingerprint") == wish.fingerprint]
    return alike[-1] if alike else None


def clock_text(seconds: float | None) -> str:
    """75 -> '1:15'; '?' when nobody knows."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _at(act: Act, position: Position) -> Act:
    details = {**act.details, "checkpoint": position.to_document()}
    return act.now(messages=position.copied, details=details)
