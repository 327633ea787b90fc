"""The record of every reset and replay: who did what, when, and what became of it. Kept in a topic of its own.

The topic has one partition and is compacted by id: each record tells everything known of one act, so the newest is
enough. It is written before the act begins and again when it ends; one that never ended is told as such.
"""

import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from respool.cli import kafka_library
from respool.cli.consume_range import Earliest
from respool.cli.errors import BrokerUnreachable, TopicExists
from respool.cli.interrupts import CtrlC
from respool.cli.kafka import Cluster
from respool.cli.topic_reader import TopicReader, plan
from respool.model.operator_errors import OperatorError

AUDIT_TOPIC = "__respool_replays"
AUDIT_SETTINGS = {"cleanup.policy": "compact"}
WRITE_SECONDS = 15.0
# A record must fit the topic's max.message.bytes; what does not is told without its details.
RECORD_BYTES_MAX = 900_000

RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One reset or replay."""

    id: str
    # 'reset' or 'replay'.
    kind: str
    who: str
    begun_ms: int
    updated_ms: int
    # One of RUNNING, DONE, FAILED, INTERRUPTED. RUNNING may also mean that it was killed.
    state: str = RUNNING
    # What it reads or moves, and where to: 'rides' and 'rides-copy', 'group billing' and ''.
    source: str
    target: str
    # From where to where, in words.
    from_text: str
    to_text: str
    messages: int = 0
    outcome: str = ""
    # What the act must know to go on, or to be looked into: offsets, keys, producer ids.
    details: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For programs. Text for people is left out, except why one failed."""
        return {
            "id": self.id,
            "kind": self.kind,
            "who": self.who,
            "state": self.state,
            "begun_ms": self.begun_ms,
            "updated_ms": self.updated_ms,
            "source": _place(self.source),
            # A reset has none: it moves its source.
            "target": None if self.kind == "reset" else _place(self.target),
            "messages": self.messages,
            "message": self.outcome if self.state == FAILED else None,
            "partitions": self._partitions(),
        }

    def _partitions(self) -> list[dict[str, Any]] | None:
        """Of a reset, the committed offsets before and after; of a replay, the ranges. None: too many to record."""
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
    def begin(cls, *, kind: str, **fields: Any) -> "Act":
        now_ms = _now_ms()
        return cls(
            id=secrets.token_hex(4),
            kind=kind,
            who=whoami(),
            begun_ms=now_ms,
            updated_ms=now_ms,
            **fields,
        )

    def now(self, **changes: Any) -> "Act":
        """The same act, at this moment."""
        return replace(self, updated_ms=_now_ms(), **changes)


class Audit:
    """The acts recorded on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: Any = None
        self._failure = ""

    def acts(self) -> dict[str, Act]:
        """All acts by id, the first begun first."""
        latest: dict[str, Act] = {}
        for record_id, value in self._records():
            if value is None:
                latest.pop(record_id, None)
            elif (act := _read(value)) is not None:
                latest[record_id] = act
        return {act.id: act for act in sorted(latest.values(), key=lambda act: act.begun_ms)}

    def write(self, act: Act) -> None:
        """Record an act as it stands; return when the broker has it.

        Raises:
            OperatorError: it could not be recorded.
        """
        if self._producer is None:
            self._open()
        self._failure = ""
        with kafka_library.translated(self._cluster.broker):
            self._producer.produce(
                AUDIT_TOPIC, key=act.id.encode(), value=_encode(act), on_delivery=self._on_delivery
            )
            left = self._producer.flush(WRITE_SECONDS)
        if left:
            raise BrokerUnreachable(
                f"the act could not be recorded in {AUDIT_TOPIC} within {WRITE_SECONDS:.0f} seconds"
            )
        if self._failure:
            raise OperatorError(f"the act could not be recorded in {AUDIT_TOPIC}: {self._failure}")

    def _open(self) -> None:
        if AUDIT_TOPIC not in self._cluster.topics():
            # Somebody else may be faster.
            with suppress(TopicExists):
                self._cluster.create_topic(AUDIT_TOPIC, partitions=1, settings=AUDIT_SETTINGS)
        # One record is under way at a time, so that they need no sequence to stay in order; one that came twice says
        # the same twice. And a producer id takes half a second to get.
        self._producer = self._cluster.producer(
            acks="all",
            enable_idempotence=False,
            message_timeout_ms=int(WRITE_SECONDS * 1000),
            linger_ms=0,
        )

    def _on_delivery(self, error: Any, message: Any) -> None:
        del message
        if error is not None:
            self._failure = kafka_library.reason(error)

    def _records(self) -> Iterator[tuple[str, bytes | None]]:
        topic = self._cluster.topics().get(AUDIT_TOPIC)
        if topic is None:
            return
        cursors = plan(
            self._cluster, topic, topic.partitions, start=Earliest(), until=None, follow=False
        )
        reader = TopicReader(self._cluster, AUDIT_TOPIC, cursors, follow=False)
        try:
            for messages in reader.batches(None, CtrlC()):
                for message in messages:
                    yield (message.key or b"").decode("utf-8", "replace"), message.value
        finally:
            reader.close()


def whoami() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _encode(act: Act) -> bytes:
    value = json.dumps(asdict(act), ensure_ascii=False, separators=(",", ":")).encode()
    if len(value) <= RECORD_BYTES_MAX:
        return value
    return _encode(replace(act, details={"left_out_bytes": len(value)}))


def _place(text: str) -> dict[str, str] | None:
    """`rides` -> {"topic": "rides"}, `group billing` -> {"group": "billing"}. A topic's name holds no space."""
    if not text:
        return None
    kind, space, name = text.partition(" ")
    return {kind: name} if space else {"topic": text}


def _read(value: bytes) -> Act | None:
    """What somebody else wrote into the topic is passed over."""
    try:
        fields = json.loads(value)
        return Act(**fields)
    except (ValueError, TypeError):
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
