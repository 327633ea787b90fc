"""What the checks of delayed records say about logs that are right, and about logs that are not."""

from respool.model.ids import TopicPartition
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.sim.checks.delay_history import AskedDelay, DelayHistory
from respool.sim.checks.delay_log import DelayLog
from respool.sim.checks.history import History
from respool.sim.clients.delay_producers import headers_of

NAME = TopicPartition("alarms", 0)


class LogStory:
    def __init__(self) -> None:
        self.main = History()
        self.history = DelayHistory(self.main)
        self.now_ms = 1_000
        self.log = DelayLog(NAME, self.history, latest_ms=lambda: self.now_ms)

    def send(self, value: bytes, asked: AskedDelay) -> int:
        self.history.asked[value] = asked
        return self._append(value, *headers_of(asked))

    def deliver(self, value: bytes, first: int, *, due_ms: int) -> int:
        return self._append(
            value,
            ("respool-delivered-from", b"%d" % first),
            ("respool-sent-at", b"1000"),
            ("respool-due-at", b"%d" % due_ms),
        )

    def _append(self, value: bytes, *headers: tuple[str, bytes | None]) -> int:
        offset = self.log.end
        record = NewRecord(value=value, timestamp_ms=self.now_ms, headers=headers)
        data = build_batch([record], base_offset=offset)
        self.log.take(RecordBatch(read_header(data), data))
        self.log.on_stable(self.log.end)
        return offset

    def rules(self) -> set[str]:
        self.log.check()
        return {one.rule for one in self.main.violations}


def test_a_record_that_is_delivered_once_in_time_is_right() -> None:
    story = LogStory()
    first = story.send(b"a", AskedDelay(delay_ms=500))
    assert story.log.waiting_counts() == (1, 1)
    story.now_ms = 1_500
    story.deliver(b"a", first, due_ms=1_500)
    assert story.rules() == set()
    assert story.log.visible() == {1: b"a"}


def test_a_record_that_is_not_delivered_or_twice_is_found() -> None:
    story = LogStory()
    story.send(b"a", AskedDelay(delay_ms=500))
    assert story.rules() == {"D1"}
    story = LogStory()
    first = story.send(b"a", AskedDelay(delay_ms=0))
    for _ in range(2):
        story.deliver(b"a", first, due_ms=1_000)
    assert story.rules() == {"D1"}


def test_a_record_that_is_early_is_found() -> None:
    story = LogStory()
    first = story.send(b"a", AskedDelay(delay_ms=500))
    story.now_ms = 1_499
    story.deliver(b"a", first, due_ms=1_500)
    assert story.rules() == {"D2"}


def test_a_record_that_was_cancelled_before_its_time_is_found() -> None:
    story = LogStory()
    first = story.send(b"a", AskedDelay(delay_ms=500, id="x"))
    story.send(b"b", AskedDelay(cancels="x"))
    assert story.log.waiting_counts() == (0, 1)
    story.now_ms = 1_500
    story.deliver(b"a", first, due_ms=1_500)
    assert story.rules() == {"D3"}


def test_a_copy_of_nothing_is_found() -> None:
    story = LogStory()
    story.send(b"a", AskedDelay())
    story.deliver(b"b", 0, due_ms=1_000)
    assert story.rules() == {"D4"}


def test_a_schedule_may_leave_out_times_but_not_the_last() -> None:
    story = LogStory()
    first = story.send(b"a", AskedDelay(every_ms=1_000, times=3))
    story.now_ms = 5_000
    story.deliver(b"a", first, due_ms=3_000)
    story.deliver(b"a", first, due_ms=4_000)
    assert story.rules() == set()
    story = LogStory()
    first = story.send(b"a", AskedDelay(every_ms=1_000, times=3))
    story.now_ms = 5_000
    story.deliver(b"a", first, due_ms=3_000)
    assert story.rules() == {"D1"}
