"""A replay into a topic: starts a copy or resumes a recorded one, and records how it ends."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from respool.client.kafka.admin import create_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.configs import ConfigSource
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable
from respool.client.kafka.metadata import TopicMetadata
from respool.model.quantities import counted
from respool.model.topic_config import OF_ITSELF
from respool.model.view_config import VIEW_RULES
from respool.records.batch import Codec
from respool.replay.audit import DONE, FAILED, INTERRUPTED, RUNNING, AuditEntry, AuditLog
from respool.replay.copy import ReplayCopy
from respool.replay.copy_plan import CopyPlan, Span
from respool.replay.copy_position import CopyPosition
from respool.replay.copy_run import Control, CopyJob, RunProgress
from respool.replay.errors import InvalidReplay, ReplayError, client_errors_translated
from respool.replay.letter_rules import LetterRules
from respool.replay.pace import Pace
from respool.replay.request import MessageFilter, ReplayRequest
from respool.replay.time_range import TimeRange
from respool.replay.topic_lookup import check_leaders, describe_topic, held_spans, topic_configs
from respool.replay.writer import new_producer_ids

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Pace and compression; a resumed replay may have other options."""

    pace: Pace
    codec: Codec = Codec.NONE


def begin_copy(
    cluster: Cluster,
    audit: AuditLog,
    request: ReplayRequest,
    spans: Mapping[int, Span],
    time_range: TimeRange,
    *,
    marks: Mapping[str, str | None],
    on_note: Note,
) -> AuditEntry:
    """Make the plan of a copy, and record it. `marks` are recorded with it: see `repeated_request.py`."""
    assert request.into is not None
    source = describe_topic(cluster, request.topic)
    into = _target_topic(cluster, request.into, like=source, on_note=on_note)
    ends = held_spans(cluster, into.name, into.leaders)
    producers = new_producer_ids(cluster, len(spans))
    plan = CopyPlan(
        topic=request.topic,
        into=request.into,
        spans=spans,
        producers=dict(zip(spans, producers, strict=True)),
        source_count=source.partitions,
        target_ends={number: held.stop for number, held in ends.items()},
    )
    entry = AuditEntry.begin(
        kind="replay",
        source=request.topic,
        target=request.into,
        from_text=time_range.from_text,
        to_text=time_range.to_text,
        details={
            "fingerprint": request.fingerprint,
            "wish": request.to_document(),
            "to_ms": time_range.to_ms,
            "plan": plan.to_document(),
            "checkpoint": None,
            **marks,
        },
    )
    audit.write(entry)
    return entry


def carry_out(
    cluster: Cluster,
    audit: AuditLog,
    entry: AuditEntry,
    control: Control,
    *,
    selection: MessageFilter,
    options: CopyOptions,
    on_progress: Callable[[RunProgress], None],
    on_note: Note,
) -> AuditEntry:
    """Copy what is left, and record the end: DONE, or INTERRUPTED after a stop.

    Raises:
        ReplayError: it failed, and was recorded as FAILED; its hint says how to resume it.
    """
    try:
        with client_errors_translated():
            plan = CopyPlan.from_document(entry.details["plan"])
            position = CopyPosition.from_document(plan, entry.details["checkpoint"])
            if entry.state != RUNNING:
                entry = entry.updated(state=RUNNING, outcome="")
                audit.write(entry)
            letters = LetterRules.from_document(entry.details["wish"].get("letters"))
            job = CopyJob(
                cluster=cluster,
                plan=plan,
                replay_id=entry.id,
                selection=selection,
                letters=letters,
                pace=options.pace,
                codec=options.codec,
                # A copy of a letter has the time at which it is made.
                oldest_ms=_oldest_ms(cluster, plan.into) if letters is None else None,
                on_progress=on_progress,
                on_checkpoint=lambda at: audit.write(_at(entry, at)),
                on_note=on_note,
            )
            position = ReplayCopy(job).run(position, control)
            return _end(audit, _at(entry, position), position)
    except ReplayError as error:
        # If the broker is unavailable, the entry keeps its state, which says that the replay did not end.
        with suppress(ReplayError):
            audit.write(entry.updated(state=FAILED, outcome=error.message))
        resumes = (
            f"started again with the same arguments, or with --resume {entry.id}, it continues"
        )
        error.hint = f"{error.hint}; {resumes}" if error.hint else resumes
        raise


def _end(audit: AuditLog, entry: AuditEntry, position: CopyPosition) -> AuditEntry:
    copied = counted(position.copied, "message")
    if position.is_complete:
        entry = entry.updated(state=DONE, outcome=f"{copied} copied")
    else:
        entry = entry.updated(state=INTERRUPTED, outcome=f"stopped with {copied} copied")
    audit.write(entry)
    return entry


def _target_topic(
    cluster: Cluster, name: str, *, like: TopicMetadata, on_note: Note
) -> TopicMetadata:
    """The topic to write to; created with the source's partition count and configs if it does not exist."""
    if name == like.name:
        raise InvalidReplay(
            "a topic is not replayed into itself: all its readers would read the copies",
            hint="name another topic as the target",
        )
    if name not in cluster.retrying(cluster.refresh_all):
        _create_like(cluster, name, like, on_note=on_note)
        # Brokers learn of a new topic and its leaders at different times.
        return cluster.retrying(lambda: _led_topic(cluster, name))
    into = describe_topic(cluster, name)
    check_leaders(cluster, into)
    return into


def _led_topic(cluster: Cluster, name: str) -> TopicMetadata:
    topic = cluster.refresh_all().get(name)
    if topic is None or None in topic.leaders.values():
        raise BrokerUnreachable(f"the new topic {name} has no leader yet")
    return topic


def _create_like(cluster: Cluster, name: str, like: TopicMetadata, *, on_note: Note) -> None:
    own = {
        key: entry.value or ""
        for key, entry in topic_configs(cluster, like.name).items()
        if entry.source == ConfigSource.TOPIC and key not in OF_ITSELF and key not in VIEW_RULES
    }
    try:
        create_topic(cluster, name, partitions=like.partitions, configs=own)
    except BrokerRefused as error:
        # Another client created it at the same time.
        if error.code != Code.topic_already_exists:
            raise
        return
    partitions = counted(like.partitions, "partition")
    on_note(f"created {name} with {partitions}, and with {like.name}'s settings")


def _oldest_ms(cluster: Cluster, name: str) -> int | None:
    """The oldest timestamp that this topic's retention keeps; None: it keeps all."""
    configs = {key: entry.value for key, entry in topic_configs(cluster, name).items()}
    kept_ms = int(configs.get("retention.ms") or -1)
    policy = configs.get("cleanup.policy")
    if kept_ms < 0 or "delete" not in ("delete" if policy is None else policy):
        return None
    return int(time.time() * 1000) - kept_ms


def _at(entry: AuditEntry, position: CopyPosition) -> AuditEntry:
    details = {**entry.details, "checkpoint": position.to_document()}
    return entry.updated(messages=position.copied, details=details)
