"""What members of one share group were given and answered, and what of it must not be. Pure.

Q1 a leader's view of a partition has holes (`queue_watch.py`)   Q2 two members hold a record
Q3 delivered again though its end was answered              Q4 a record is neither accepted nor a dead letter
Q5 a delivery count falls, or exceeds the limit             Q6 too many are unfinished (`queue_watch.py`)
Q7 the group's start goes back                              Q8 delivered before its pause is over
Q9 delivered before the one of its key before it has ended  Q10 a letter is missing, or has no reason
Q11 delivered what is not in the log, or not to be shown
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from respool.client.queues.queue_session import Acknowledgement
from respool.model.ids import TopicPartition
from respool.model.retry.failure_headers import FailureRecord

NEVER_S = float("inf")
_ENDS = frozenset({Acknowledgement.ACCEPT, Acknowledgement.REJECT, Acknowledgement.GAP})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroup:
    """A share group of a run, and the settings that its checks need."""

    name: str
    configs: Mapping[str, str]
    delivery_limit: int
    lock_ms: int
    # As respool.share.retry.delays.ms.
    delays_ms: tuple[int, ...] = ()
    is_ordered: bool = False
    is_committed: bool = False
    # False: it begins wherever the partition's end was when it was first loaded.
    is_from_earliest: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDelivery:
    member: str
    delivery_count: int
    # When the fetch was sent, and when its reply came.
    asked_s: float
    at_s: float


@dataclass(slots=True)
class Holding:
    """A delivery whose lock cannot have ended yet, as long as the broker keeps the session and what it has loaded."""

    member: str
    count: int
    until_s: float
    is_kept: Callable[[], bool]


@dataclass(slots=True)
class DeliveredRecord:
    deliveries: list[QueueDelivery] = field(default_factory=list)
    holding: Holding | None = None
    # When an acknowledgement that ends it was first sent, and when one was first answered without an error.
    end_sent_s: float = NEVER_S
    end_answered_s: float = NEVER_S
    # Kinds of acknowledgements: sent, and answered without an error.
    sent: set[Acknowledgement] = field(default_factory=set)
    answered: set[Acknowledgement] = field(default_factory=set)
    # A release was answered: at this time, after as many deliveries, and was sent at that time.
    released_s: float = NEVER_S
    released_count: int = 0
    release_sent_s: float = 0.0


Place = tuple[TopicPartition, int]


class QueueLedger:
    def __init__(
        self,
        group: QueueGroup,
        *,
        violate: Callable[[str, str], None],
        early_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`early_ms`: how much earlier than it should a pause may end, because clocks were set or run fast."""
        self.group = group
        self.records: dict[Place, DeliveredRecord] = {}
        # The lowest start that any reply named.
        self.starts: dict[TopicPartition, int] = {}
        self._highest_starts: dict[TopicPartition, int] = {}
        self._report = violate
        self._early_ms = early_ms

    def _violate(self, rule: str, place: Place, text: str) -> None:
        self._report(rule, f"{self.group.name}: {place[0]}@{place[1]} {text}")

    # -- members -----------------------------------------------------------------------------------------------------

    def on_delivered(
        self, place: Place, delivery: QueueDelivery, *, is_kept: Callable[[], bool] | None = None
    ) -> None:
        record = self.records.setdefault(place, DeliveredRecord())
        name, offset = place
        self.starts[name] = min(offset, self.starts.get(name, offset))
        self._check_repeated(place, record, delivery)
        if delivery.delivery_count > self.group.delivery_limit:
            self._violate("Q5", place, f"has been delivered {delivery.delivery_count} times")
        held = record.holding
        record.deliveries.append(delivery)
        if held is not None and delivery.delivery_count < held.count and held.is_kept():
            # An earlier delivery, whose reply was late.
            return
        if (
            held is not None
            and held.member != delivery.member
            and delivery.at_s < held.until_s
            and held.is_kept()
        ):
            self._violate("Q2", place, f"is held by {held.member}, and {delivery.member} has it")
        record.holding = None
        if is_kept is not None:
            until_s = delivery.asked_s + self.group.lock_ms * 0.98 / 1_000
            record.holding = Holding(delivery.member, delivery.delivery_count, until_s, is_kept)

    def _check_repeated(
        self, place: Place, record: DeliveredRecord, delivery: QueueDelivery
    ) -> None:
        if delivery.asked_s > record.end_answered_s:
            ends = ", ".join(sorted(one.name for one in record.answered & _ENDS))
            self._violate("Q3", place, f"is delivered to {delivery.member} after {ends}")
        if delivery.asked_s <= record.released_s:
            return
        if delivery.delivery_count <= record.released_count:
            self._violate(
                "Q5",
                place,
                f"was released after delivery {record.released_count}, the next one is {delivery.delivery_count}",
            )
        delays = self.group.delays_ms
        if delays:
            delay_ms = delays[min(record.released_count, len(delays)) - 1]
            waited_ms = (delivery.at_s - record.release_sent_s) * 1_000
            if waited_ms < delay_ms * 0.98 - self._early_ms():
                self._violate(
                    "Q8",
                    place,
                    f"comes {waited_ms:.0f} ms after release {record.released_count}: {record.deliveries}, {delivery}",
                )

    def on_sent(self, place: Place, kind: Acknowledgement, member: str, *, now_s: float) -> None:
        record = self.records[place]
        record.sent.add(kind)
        if kind in _ENDS:
            record.end_sent_s = min(record.end_sent_s, now_s)
        if record.holding is not None and record.holding.member == member:
            record.holding = None

    def on_answered(
        self, place: Place, kind: Acknowledgement, count: int, *, sent_s: float, now_s: float
    ) -> None:
        """An acknowledgement of the delivery with this count was answered without an error."""
        record = self.records[place]
        record.answered.add(kind)
        if kind in _ENDS:
            record.end_answered_s = min(record.end_answered_s, now_s)
        elif kind is Acknowledgement.RELEASE and count >= record.released_count:
            record.released_s, record.released_count = now_s, count
            record.release_sent_s = sent_s

    def on_start(self, name: TopicPartition, start: int) -> None:
        """A reply of the coordinator names the group's start; replies come in their order."""
        self.starts[name] = min(start, self.starts.get(name, start))
        highest = self._highest_starts.get(name, start)
        if start < highest:
            self._violate("Q7", (name, start), f"is the start, {highest} was before")
        self._highest_starts[name] = max(start, highest)

    # -- in the end --------------------------------------------------------------------------------------------------

    def check(
        self,
        shown: Mapping[TopicPartition, Mapping[int, bytes]],
        keys: Mapping[bytes, bytes | None],
        letters: Iterable[FailureRecord],
    ) -> None:
        """Everything was acknowledged: `shown` is what a reader with the group's isolation sees; `keys` by value."""
        of_group: dict[Place, list[FailureRecord]] = {}
        for one in letters:
            if one.group == self.group.name:
                place = (TopicPartition(one.topic, one.partition), one.offset)
                of_group.setdefault(place, []).append(one)
        for name, values in shown.items():
            start = 0 if self.group.is_from_earliest else self.starts.get(name)
            if start is None:
                continue
            for offset in values:
                if offset >= start:
                    self._check_end((name, offset), of_group.get((name, offset), ()))
        for place in self.records:
            if place[1] not in shown.get(place[0], {}):
                self._violate("Q11", place, "was delivered, and is not shown to a reader")
        self._check_letters(of_group)
        if self.group.is_ordered:
            self._check_order(shown, keys, of_group)

    def _check_end(self, place: Place, letters: Iterable[FailureRecord]) -> None:
        record = self.records.get(place)
        has_letter = bool(list(letters))
        if record is None:
            if not has_letter:
                self._violate("Q4", place, "was never delivered")
            return
        if record.end_sent_s == NEVER_S and not has_letter:
            counts = [one.delivery_count for one in record.deliveries]
            self._violate(
                "Q4", place, f"ended, nobody said so, and there is no letter; deliveries {counts}"
            )
        # Once it has ended otherwise, a rejection is answered as a retry.
        is_rejected = Acknowledgement.REJECT in record.answered
        if is_rejected and Acknowledgement.ACCEPT not in record.sent and not has_letter:
            self._violate("Q10", place, "was rejected, and there is no letter")

    def _check_letters(self, letters: Mapping[Place, list[FailureRecord]]) -> None:
        for place, found in letters.items():
            record = self.records.get(place, DeliveredRecord())
            deliveries = max(one.deliveries or 0 for one in found)
            is_rejected = Acknowledgement.REJECT in record.sent
            if not is_rejected and deliveries < self.group.delivery_limit:
                self._violate("Q10", place, f"has a letter after {deliveries} deliveries")
            answered = record.answered & _ENDS
            if answered == {Acknowledgement.ACCEPT} and len(record.deliveries) < 2:
                self._violate("Q10", place, "was accepted by its only member, and has a letter")

    def _check_order(
        self,
        shown: Mapping[TopicPartition, Mapping[int, bytes]],
        keys: Mapping[bytes, bytes | None],
        letters: Mapping[Place, list[FailureRecord]],
    ) -> None:
        for name, values in shown.items():
            last: dict[bytes, int] = {}
            start = self.starts.get(name, 0)
            for offset, value in sorted(values.items()):
                key = keys.get(value)
                if key is None or offset < start:
                    continue
                before, last[key] = last.get(key), offset
                if before is None or (name, offset) not in self.records:
                    continue
                first = self.records[name, offset].deliveries[0]
                record = self.records.get((name, before))
                end_s = NEVER_S if record is None else record.end_sent_s
                if first.at_s < end_s and (name, before) not in letters:
                    self._violate(
                        "Q9", (name, offset), f"came before {before} of key {key!r} had ended"
                    )
