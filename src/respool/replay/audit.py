"""The audit log: who started which reset or replay, when, and how it ended. Stored in a topic of its own.

The topic has one partition and is compacted by id: each record is a complete entry, so the newest is enough. A record
is written before the operation begins and again when it ends; the entry of one that never ended says RUNNING.
"""

import getpass
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from respool.client.kafka.admin import create_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, ClientError, UnknownTopic
from respool.client.kafka.sequenced_writer import ALL_IN_SYNC
from respool.records.build import NewRecord, build_batch
from respool.replay.errors import ReplayFailed, ReplayUnreachable, client_errors_translated
from respool.replay.record_reader import RecordRangeReader
from respool.replay.topic_lookup import check_leaders, held_spans
from respool.wire.api_table import Api

AUDIT_TOPIC = "__respool_replays"
AUDIT_SETTINGS = {"cleanup.policy": "compact"}
WRITE_SECONDS = 15
# A record must fit the topic's max.message.bytes; a longer one is written without its details.
RECORD_BYTES_MAX = 900_000

RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One reset or replay. The fields are those of the recorded JSON."""

    id: str
    # 'reset' or 'replay'.
    kind: str
    who: str
    begun_ms: int
    updated_ms: int
    # One of RUNNING, DONE, FAILED, INTERRUPTED. RUNNING may also mean that its process was killed.
    state: str = RUNNING
    # Its source and its target: "rides" and "rides-copy", or "group billing" and "".
    source: str
    target: str
    # The range, as text.
    from_text: str
    to_text: str
    messages: int = 0
    outcome: str = ""
    # Details to resume or investigate it: offsets, keys, producer ids.
    details: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The entry as a JSON document, without the texts for people except the reason of a failure."""
        return {
            "id": self.id,
            "kind": self.kind,
            "who": self.who,
            "state": self.state,
            "begun_ms": self.begun_ms,
            "updated_ms": self.updated_ms,
            "source": _place(self.source),
            # A reset has no target: it moves its source.
            "target": None if self.kind == "reset" else _place(self.target),
            "messages": self.messages,
            "message": self.outcome if self.state == FAILED else None,
            "partitions": self._partitions(),
        }

    def _partitions(self) -> list[dict[str, Any]] | None:
        """A reset's committed offsets before and after, or a replay's ranges. None: too many to record."""
        if self.kind == "reset":
            moves = self.details.get("partitions")
            names = ("topic", "partition", "from", "to")
            return moves and [{name: move[name] for name in names} for move in moves]
        spans = self.details.get("plan", self.details).get("spans")
        return spans and [
            {"topic": self.source, "partition": int(number), "from": start, "to": stop}
            for number, (start, stop) in spans.items()
        ]

    @classmethod
    def begin(cls, *, kind: str, **fields: Any) -> "AuditEntry":
        now_ms = _now_ms()
        return cls(
            id=secrets.token_hex(4),
            kind=kind,
            who=whoami(),
            begun_ms=now_ms,
            updated_ms=now_ms,
            **fields,
        )

    def updated(self, **changes: Any) -> "AuditEntry":
        """Return a copy of the entry with these changes, updated now."""
        return replace(self, updated_ms=_now_ms(), **changes)


class AuditLog:
    """The entries recorded in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._has_topic = False

    def entries(self) -> dict[str, AuditEntry]:
        """All entries by id, in the order they began.

        Raises:
            ReplayError: they cannot be read.
        """
        return {one.id: one for one in sorted(self.in_log_order(), key=lambda one: one.begun_ms)}

    def in_log_order(self) -> list[AuditEntry]:
        """All entries, in the order of their first record; begin times are of different clocks.

        Raises:
            ReplayError: they cannot be read.
        """
        latest: dict[str, AuditEntry] = {}
        with client_errors_translated():
            for record_id, value in self._records():
                if value is None:
                    latest.pop(record_id, None)
                elif (entry := _read(value)) is not None:
                    latest[record_id] = entry
        return list(latest.values())

    def write(self, entry: AuditEntry) -> None:
        """Record an entry; return when all in-sync replicas have it.

        Raises:
            ReplayError: it could not be recorded.
        """
        self._write(entry.id, _encode(entry))

    def remove(self, entry_id: str) -> None:
        """Remove an entry whose operation never began.

        Raises:
            ReplayError: that could not be recorded.
        """
        self._write(entry_id, None)

    def _write(self, entry_id: str, value: bytes | None) -> None:
        # Only one record is in flight at a time, so its order needs no sequence numbers; a duplicate changes nothing.
        record = NewRecord(key=entry_id.encode(), value=value, timestamp_ms=_now_ms())
        fields = {
            "transactional_id": None,
            "acks": ALL_IN_SYNC,
            "timeout": WRITE_SECONDS * 1000,
            "topic_data": [
                {
                    "name": AUDIT_TOPIC,
                    "partition_data": [{"index": 0, "records": build_batch([record])}],
                }
            ],
        }
        try:
            if not self._has_topic:
                self._create()
            self._cluster.retrying(lambda: self._produce(fields), limit_ms=WRITE_SECONDS * 1000)
        except BrokerUnreachable as error:
            raise ReplayUnreachable(
                f"the entry could not be recorded in {AUDIT_TOPIC} within {WRITE_SECONDS} seconds: {error}"
            ) from error
        except ClientError as error:
            raise ReplayFailed(
                f"the entry could not be recorded in {AUDIT_TOPIC}: {error}"
            ) from error

    def _create(self) -> None:
        if AUDIT_TOPIC not in self._cluster.retrying(self._cluster.refresh_all):
            try:
                create_topic(self._cluster, AUDIT_TOPIC, partitions=1, configs=AUDIT_SETTINGS)
            except BrokerRefused as error:
                # Another client created it at the same time.
                if error.code != Code.topic_already_exists:
                    raise
        self._has_topic = True

    def _produce(self, fields: Mapping[str, Any]) -> None:
        try:
            leader = self._cluster.refresh(AUDIT_TOPIC).leader_of(0)
        except UnknownTopic as error:
            # Brokers learn of a new topic at different times.
            raise BrokerUnreachable(str(error)) from error
        if leader is None:
            raise BrokerUnreachable(f"{AUDIT_TOPIC}/0 has no leader")
        reply = self._cluster.request(leader.broker, Api.PRODUCE, fields)
        (answer,) = reply.responses[0].partition_responses
        if answer.error_code:
            raise refused(f"writing to {AUDIT_TOPIC}", answer.error_code)

    def _records(self) -> Iterator[tuple[str, bytes | None]]:
        topic = self._cluster.retrying(self._cluster.refresh_all).get(AUDIT_TOPIC)
        if topic is None:
            return
        check_leaders(self._cluster, topic)
        spans = held_spans(self._cluster, AUDIT_TOPIC, topic.leaders)
        reader = RecordRangeReader(self._cluster, AUDIT_TOPIC, spans)
        try:
            for fetched in reader.batches():
                for _, records in fetched:
                    for record in records:
                        yield (record.key or b"").decode("utf-8", "replace"), record.value
        finally:
            reader.close()


def whoami() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a user id without a name.
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


def _encode(entry: AuditEntry) -> bytes:
    value = json.dumps(asdict(entry), ensure_ascii=False, separators=(",", ":")).encode()
    if len(value) <= RECORD_BYTES_MAX:
        return value
    return _encode(replace(entry, details={"left_out_bytes": len(value)}))


def _place(text: str) -> dict[str, str] | None:
    """`rides` -> {"topic": "rides"}, `group billing` -> {"group": "billing"}. A topic's name has no space."""
    if not text:
        return None
    kind, space, name = text.partition(" ")
    return {kind: name} if space else {"topic": text}


def _read(value: bytes) -> AuditEntry | None:
    """Decode an entry; None for a record that another program wrote into the topic."""
    try:
        fields = json.loads(value)
        return AuditEntry(**fields)
    except (ValueError, TypeError):
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
