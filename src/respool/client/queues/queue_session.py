"""One broker's share session from the client's side: epochs, acknowledgements to send, and what replies mean. Pure.

A session belongs to a connection. Requests carry its epoch: 0 opens it, then 1, 2, …; -1 closes it. Acknowledgements go
with the next fetch, or with a ShareAcknowledge. If the connection is lost, the broker gives all held records to others,
so acknowledgements that were not sent have no effect any more.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from respool.client.kafka.codes import Code

NEW_SESSION = 0
CLOSED_SESSION = -1
# At most as many records as asked for, even if a batch has more: one slow consumer does not hold all of it.
RECORD_LIMIT = 1
_EPOCH_MAX = 2**31 - 1
_MILLISECOND = timedelta(milliseconds=1)
# The session must be opened again; what is held stays held.
SESSION_ERRORS = frozenset(
    {
        Code.share_session_not_found,
        Code.invalid_share_session_epoch,
        Code.share_session_limit_reached,
    }
)


class Acknowledgement(IntEnum):
    """The types of acknowledgements, in Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class QueuePlace(NamedTuple):
    topic_id: UUID
    partition: int


class DeliveredRange(NamedTuple):
    first: int
    last: int
    delivery_count: int


class DeliveredPart(NamedTuple):
    """What a fetch brought of one partition."""

    place: QueuePlace
    ranges: tuple[DeliveredRange, ...]
    records: bytes


class SessionReply(NamedTuple):
    parts: tuple[DeliveredPart, ...] = ()
    # Partitions with an error, such as another leader.
    errors: Mapping[QueuePlace, int] = {}
    # Acknowledgements that had no effect: the lock had ended, and others may have the records now.
    refused: Mapping[QueuePlace, int] = {}
    lock_ms: int = 0


class QueueSession:
    def __init__(self, group: str, member_id: str) -> None:
        self._group = group
        self._member_id = member_id
        self.epoch = NEW_SESSION
        self._known: frozenset[QueuePlace] = frozenset()
        # Acknowledgements to send: offset -> type.
        self._pending: dict[QueuePlace, dict[int, Acknowledgement]] = {}
        self._sent: dict[QueuePlace, dict[int, Acknowledgement]] = {}

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def acknowledge(self, place: QueuePlace, offset: int, kind: Acknowledgement) -> None:
        self._pending.setdefault(place, {})[offset] = kind

    def on_connection_lost(self) -> None:
        """All records that were held belong to nobody now."""
        self.epoch = NEW_SESSION
        self._known = frozenset()
        self._pending.clear()
        self._sent.clear()

    # --- requests

    def fetch_fields(
        self, places: Iterable[QueuePlace], *, records_max: int, wait_ms: int, bytes_max: int
    ) -> dict[str, Any]:
        """A ShareFetch of these partitions, with the acknowledgements so far."""
        wanted = frozenset(places)
        acknowledged = self._take_pending()
        topics: dict[UUID, dict[int, list[dict[str, Any]]]] = {}
        for place in sorted((wanted - self._known) | acknowledged.keys()):
            batches = _batches(acknowledged.get(place, {}))
            topics.setdefault(place.topic_id, {})[place.partition] = batches
        forgotten: dict[UUID, list[int]] = {}
        for place in sorted(self._known - wanted):
            forgotten.setdefault(place.topic_id, []).append(place.partition)
        self._known = wanted
        return {
            "group_id": self._group,
            "member_id": self._member_id,
            "share_session_epoch": self.epoch,
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": bytes_max,
            "max_records": records_max,
            "batch_size": records_max,
            "share_acquire_mode": RECORD_LIMIT,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition_index": number, "acknowledgement_batches": batches}
                        for number, batches in partitions.items()
                    ],
                }
                for topic_id, partitions in topics.items()
            ],
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": numbers}
                for topic_id, numbers in forgotten.items()
            ],
        }

    def acknowledge_fields(self, *, closes: bool = False) -> dict[str, Any]:
        """A ShareAcknowledge with the acknowledgements so far; `closes`: and the end of the session."""
        return self._acknowledge(
            self._take_pending(), epoch=CLOSED_SESSION if closes else self.epoch, renews=False
        )

    def renew_fields(self, held: Mapping[QueuePlace, Iterable[int]]) -> dict[str, Any]:
        """A ShareAcknowledge that extends the locks of these records."""
        renewed = {
            place: dict.fromkeys(sorted(offsets), Acknowledgement.RENEW)
            for place, offsets in held.items()
        }
        return self._acknowledge(renewed, epoch=self.epoch, renews=True)

    def _acknowledge(
        self,
        acknowledged: Mapping[QueuePlace, Mapping[int, Acknowledgement]],
        *,
        epoch: int,
        renews: bool,
    ) -> dict[str, Any]:
        topics: dict[UUID, list[dict[str, Any]]] = {}
        for place, kinds in sorted(acknowledged.items()):
            topics.setdefault(place.topic_id, []).append(
                {"partition_index": place.partition, "acknowledgement_batches": _batches(kinds)}
            )
        return {
            "group_id": self._group,
            "member_id": self._member_id,
            "share_session_epoch": epoch,
            "is_renew_ack": renews,
            "topics": [{"topic_id": one, "partitions": parts} for one, parts in topics.items()],
        }

    def _take_pending(self) -> dict[QueuePlace, dict[int, Acknowledgement]]:
        if self.epoch == NEW_SESSION:
            # The request that opens a session must not acknowledge; the next one does.
            return {}
        self._sent, self._pending = self._pending, {}
        return self._sent

    # --- replies

    def on_fetched(self, reply: Any) -> SessionReply:
        """Apply a ShareFetch reply without an error of the session as a whole."""
        self._step()
        parts, errors, refused = [], {}, {}
        for topic in reply.responses:
            for one in topic.partitions:
                place = QueuePlace(topic.topic_id, one.partition_index)
                if one.acknowledge_error_code:
                    refused[place] = int(one.acknowledge_error_code)
                if one.error_code:
                    errors[place] = int(one.error_code)
                if one.acquired_records:
                    ranges = tuple(
                        DeliveredRange(each.first_offset, each.last_offset, each.delivery_count)
                        for each in one.acquired_records
                    )
                    parts.append(DeliveredPart(place, ranges, bytes(one.records or b"")))
        # A partition with an error is named again, by its new leader.
        self._known -= errors.keys()
        lock_ms = reply.acquisition_lock_timeout // _MILLISECOND
        return SessionReply(tuple(parts), errors, refused, lock_ms)

    def on_acknowledged(self, reply: Any) -> SessionReply:
        """Apply a ShareAcknowledge reply without an error of the session as a whole."""
        self._step()
        refused = {
            QueuePlace(topic.topic_id, one.partition_index): int(one.error_code)
            for topic in reply.responses
            for one in topic.partitions
            if one.error_code
        }
        return SessionReply(refused=refused)

    def on_session_error(self) -> None:
        """The session must be opened again; the records stay held, and what was not taken is sent again."""
        self.epoch = NEW_SESSION
        self._known = frozenset()
        for place, kinds in self._sent.items():
            self._pending[place] = {**kinds, **self._pending.get(place, {})}
        self._sent = {}

    def _step(self) -> None:
        self._sent = {}
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


def _batches(kinds: Mapping[int, Acknowledgement]) -> list[dict[str, Any]]:
    """Ranges of consecutive offsets with one type each."""
    batches: list[dict[str, Any]] = []
    for offset, kind in sorted(kinds.items()):
        last = batches[-1] if batches else None
        if (
            last is not None
            and last["last_offset"] + 1 == offset
            and last["acknowledge_types"] == [kind]
        ):
            last["last_offset"] = offset
        else:
            batches.append(
                {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
            )
    return batches
