"""What the checks of share groups say about stories that are right, and about stories that are not."""

from collections.abc import Callable

from respool.client.queues.queue_session import Acknowledgement
from respool.model.ids import TopicPartition
from respool.model.retry.failure_headers import FailureRecord
from respool.sim.checks.queue_ledger import QueueDelivery, QueueGroup, QueueLedger

NAME = TopicPartition("jobs", 0)
ACCEPT, RELEASE, REJECT = (
    Acknowledgement.ACCEPT,
    Acknowledgement.RELEASE,
    Acknowledgement.REJECT,
)


class Story:
    """Each step takes a second."""

    def __init__(self, *, delays_ms: tuple[int, ...] = (), is_ordered: bool = False) -> None:
        self.rules: list[str] = []
        group = QueueGroup(
            name="workers",
            configs={},
            delivery_limit=3,
            lock_ms=5_000,
            delays_ms=delays_ms,
            is_ordered=is_ordered,
        )
        self.ledger = QueueLedger(group, violate=lambda rule, _: self.rules.append(rule))
        self.now_s = 0.0

    def deliver(
        self,
        offset: int,
        count: int = 1,
        *,
        member: str = "one",
        is_kept: Callable[[], bool] | None = None,
    ) -> None:
        asked_s = self.now_s = self.now_s + 1
        delivery = QueueDelivery(
            member=member, delivery_count=count, asked_s=asked_s, at_s=asked_s + 0.1
        )
        self.ledger.on_delivered((NAME, offset), delivery, is_kept=is_kept)

    def acknowledge(
        self,
        offset: int,
        kind: Acknowledgement,
        count: int = 1,
        *,
        member: str = "one",
        is_answered: bool = True,
    ) -> None:
        sent_s = self.now_s = self.now_s + 1
        self.ledger.on_sent((NAME, offset), kind, member, now_s=sent_s)
        if is_answered:
            self.now_s += 0.1
            self.ledger.on_answered((NAME, offset), kind, count, sent_s=sent_s, now_s=self.now_s)

    def end(self, *values: bytes, letters: tuple[FailureRecord, ...] = ()) -> list[str]:
        """The rules that are broken, where the log has these values; equal ones have one key."""
        shown = {offset: value + b"%d" % offset for offset, value in enumerate(values)}
        keys = {text: values[offset] for offset, text in shown.items()}
        self.ledger.check({NAME: shown}, dict(keys), letters)
        return self.rules


def letter(offset: int, deliveries: int) -> FailureRecord:
    return FailureRecord(
        topic="jobs", partition=0, offset=offset, group="workers", deliveries=deliveries
    )


def test_records_that_are_accepted_or_become_letters_are_right() -> None:
    story = Story()
    story.deliver(0)
    story.acknowledge(0, ACCEPT)
    story.deliver(1)
    story.acknowledge(1, RELEASE)
    story.deliver(1, 2)
    story.acknowledge(1, REJECT, 2)
    for count in (1, 2, 3):
        story.deliver(2, count)
    assert story.end(b"a", b"b", b"c", letters=(letter(1, 2), letter(2, 3))) == []


def test_a_record_that_nobody_got_is_found() -> None:
    story = Story()
    story.deliver(0)
    story.acknowledge(0, ACCEPT)
    assert story.end(b"a", b"b") == ["Q4"]


def test_a_record_that_ended_by_itself_is_found() -> None:
    story = Story()
    story.deliver(0)
    assert story.end(b"a") == ["Q4"]


def test_a_record_that_comes_again_after_its_end_was_answered_is_found() -> None:
    story = Story()
    story.deliver(0)
    story.acknowledge(0, ACCEPT)
    story.deliver(0, 2)
    assert story.rules == ["Q3"]


def test_it_may_come_again_while_the_answer_is_unknown() -> None:
    story = Story()
    story.deliver(0)
    story.acknowledge(0, ACCEPT, is_answered=False)
    story.deliver(0, 2)
    story.acknowledge(0, ACCEPT, 2)
    assert story.end(b"a") == []


def test_two_holders_are_found_unless_the_first_ones_lock_or_session_has_ended() -> None:
    is_open = True
    story = Story()
    story.deliver(0, is_kept=lambda: is_open)
    story.deliver(0, 2, member="two", is_kept=lambda: True)
    assert story.rules == ["Q2"]
    story.now_s += 5
    story.deliver(0, 3)
    assert story.rules == ["Q2"]
    is_open = False
    other = Story()
    other.deliver(0, is_kept=lambda: is_open)
    other.deliver(0, 2, member="two")
    assert other.rules == []


def test_counts_that_fall_after_a_release_or_pass_the_limit_are_found() -> None:
    story = Story()
    story.deliver(0, 2)
    story.acknowledge(0, RELEASE, 2)
    story.deliver(0, 2)
    assert story.rules == ["Q5"]
    story.deliver(1, 4)
    assert story.rules == ["Q5", "Q5"]


def test_a_delivery_before_its_pause_is_over_is_found() -> None:
    story = Story(delays_ms=(3_000, 10_000))
    story.deliver(0)
    story.acknowledge(0, RELEASE)
    story.now_s += 2
    story.deliver(0, 2)
    assert story.rules == []
    story.acknowledge(0, RELEASE, 2)
    story.now_s += 2
    story.deliver(0, 3)
    assert story.rules == ["Q8"]


def test_a_start_that_goes_back_is_found() -> None:
    story = Story()
    for start in (3, 5, 5):
        story.ledger.on_start(NAME, start)
    assert story.rules == []
    story.ledger.on_start(NAME, 4)
    assert story.rules == ["Q7"]


def test_the_next_of_a_key_before_the_one_before_it_is_found() -> None:
    story = Story(is_ordered=True)
    story.deliver(0)
    # Of another key.
    story.deliver(1)
    story.deliver(2)
    for offset in (0, 1, 2):
        story.acknowledge(offset, ACCEPT)
    assert story.end(b"k", b"other", b"k") == ["Q9"]


def test_letters_are_missing_or_have_no_reason() -> None:
    story = Story()
    story.deliver(0)
    story.acknowledge(0, REJECT)
    story.deliver(1)
    story.acknowledge(1, ACCEPT)
    assert story.end(b"a", b"b", letters=(letter(1, 1),)) == ["Q10", "Q10", "Q10"]


def test_a_record_that_no_reader_is_shown_is_found() -> None:
    story = Story()
    story.deliver(1)
    story.acknowledge(1, ACCEPT)
    assert story.end(letters=()) == ["Q11"]
