"""Frames on a real broker: all of a frame is there, or nothing, or the error says what is."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from respool.client.kafka.errors import (
    BrokerUnreachable,
    ClientError,
    LoginRefused,
    TlsRefused,
    UnknownTopic,
)
from respool.spark.sink.batch_writer import BatchWriteIncomplete, BatchWriter
from respool.spark.sink.errors import NotSupported, Superseded
from respool.spark.sink.names import job_transactional_id
from respool.spark.sink.task import TaskMessage, write_prepared
from respool.testing import Broker
from support.spark_sink_query import COLUMNS, Query, options_of

SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])


class Frame:
    """A frame of two tasks, written as Spark does."""

    def __init__(self, broker: Broker) -> None:
        # So that what does not answer is given up soon.
        self.options = {"kafka.default.api.timeout.ms": "1500"}
        self.writer = BatchWriter(
            {"kafka.bootstrap.servers": broker.bootstrap, "topic": "out", **self.options},
            SCHEMA,
            overwrite=False,
        )
        self.query = Query(broker, options_of(broker, **self.options))
        self.messages = [self.task(0), self.task(1)]

    def task(
        self, number: int, attempt: int = 0, check: Callable[[], None] = lambda: None
    ) -> TaskMessage:
        table = pa.record_batch({"key": ["k"], "value": [f"row of task {number}"]})
        share = write_prepared(
            iter([table]),
            self.query.options,
            COLUMNS,
            transactional_id=job_transactional_id(self.writer._job, 10 * attempt + number),
            task=number,
            check=check,
        )
        return TaskMessage(
            sink=None,
            run=self.writer._job,
            batch=0,
            task=number,
            rows=1,
            share=share,
        )

    def values(self) -> list[str]:
        return self.query.values()


BOTH = ["row of task 0", "row of task 1"]


@pytest.fixture
def frame() -> Iterator[Frame]:
    with Broker(topics={"out": 1}) as broker:
        yield Frame(broker)


def test_a_frame_is_seen_when_it_is_committed(frame: Frame) -> None:
    assert frame.values() == []
    frame.writer.commit(frame.messages)
    assert frame.values() == BOTH


def test_a_frame_that_is_aborted_leaves_nothing_open(frame: Frame) -> None:
    # A task that died after it had written sends no message.
    frame.writer.abort([frame.messages[0], None])
    assert_nobody_is_held_back(frame)


def test_attempts_that_lost_a_race_do_not_count_and_hold_nobody_back(frame: Frame) -> None:
    frame.task(0, attempt=1)
    frame.writer.commit(frame.messages)
    assert frame.values() == BOTH


def test_a_task_that_comes_when_its_frame_was_given_up_writes_nothing(frame: Frame) -> None:
    frame.writer.abort([None, None])
    with pytest.raises(Superseded, match="has ended without this task"):
        frame.task(2, check=frame.writer._check_not_ended)
    assert_nobody_is_held_back(frame)


def test_a_task_that_was_about_to_write_when_its_frame_was_given_up_is_stopped(
    frame: Frame,
) -> None:
    def check() -> None:
        frame.writer._check_not_ended()
        frame.writer.abort([None, None])

    with pytest.raises(ClientError):
        frame.task(2, check=check)
    assert_nobody_is_held_back(frame)


def assert_nobody_is_held_back(frame: Frame) -> None:
    other = Frame(frame.query.broker)
    other.writer.commit(other.messages)
    assert frame.values() == BOTH


def test_a_frame_that_is_in_does_not_fail_though_its_end_cannot_be_marked(
    frame: Frame, caplog: pytest.LogCaptureFixture
) -> None:
    with frame.query.broker.faults.answer_with_error(
        "COORDINATOR_NOT_AVAILABLE", "InitProducerId", times=None
    ) as fault:
        frame.writer.commit(frame.messages)
        assert fault.struck
    assert frame.values() == BOTH
    assert "all rows are in" in caplog.text


def test_a_frame_that_is_in_does_not_fail_though_a_broker_is_no_longer_to_be_trusted(
    frame: Frame, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TlsRefused("the certificate is not to be trusted: it has expired")

    monkeypatch.setattr("respool.spark.sink.job_end.end_job", refuse)
    frame.writer.commit(frame.messages)
    assert frame.values() == BOTH
    assert "it has expired" in caplog.text


def test_a_commit_to_a_broker_that_is_no_longer_to_be_trusted_is_in_doubt(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been done before the trust was lost: what is in is told, and the rest tried again."""

    def refuse(*_: object, **__: object) -> None:
        raise LoginRefused("the password was changed")

    with monkeypatch.context() as patch:
        patch.setattr("respool.spark.sink.executing.end", refuse)
        with pytest.raises(
            BatchWriteIncomplete, match=r"no answer came for those of tasks \[0, 1\]"
        ):
            frame.writer.commit(frame.messages)
    frame.writer.abort(frame.messages)
    assert frame.values() == []


def test_a_commit_that_got_no_answer_for_a_part_says_so_and_is_brought_to_its_end(
    frame: Frame,
) -> None:
    first, second = frame.messages
    frame.writer.commit([first])
    second = frame.task(1)
    with (
        frame.query.broker.faults.answer_with_error(
            "COORDINATOR_NOT_AVAILABLE", "EndTxn", times=None
        ),
        pytest.raises(BatchWriteIncomplete, match=r"no answer came for those of tasks \[0, 1\]"),
    ):
        frame.writer.commit([first, second])
    frame.writer.abort([first, second])
    assert frame.values() == BOTH


def test_a_frame_whose_transaction_timed_out_says_what_is_in(frame: Frame) -> None:
    frame.query.broker.clock.advance(seconds=700)
    late = frame.task(1, attempt=1)
    with pytest.raises(BatchWriteIncomplete, match=r"1 are in; lost are those of tasks \[0\]"):
        frame.writer.commit([frame.messages[0], late])
    assert frame.values() == ["row of task 1"]


def test_a_log_cannot_be_overwritten(frame: Frame) -> None:
    with pytest.raises(NotSupported, match="a log only grows"):
        BatchWriter({"bootstrap": "127.0.0.1:1", "topic": "out"}, SCHEMA, overwrite=True)


def test_a_topic_that_is_not_there_is_told_before_tasks_are_started(frame: Frame) -> None:
    """Tasks told it, each four times, after half a minute and in two hundred lines."""
    frame.writer.check_brokers()
    here = {"bootstrap": frame.query.broker.bootstrap}
    with pytest.raises(UnknownTopic, match="no topic 'none'"):
        BatchWriter({**here, "topic": "none"}, SCHEMA, overwrite=False).check_brokers()


def test_brokers_that_are_not_there_are_told_before_tasks_are_started() -> None:
    nowhere = {"bootstrap": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1"}
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        BatchWriter({**nowhere, "topic": "out"}, SCHEMA, overwrite=False).check_brokers()
    for left_to_tasks in (
        {"txnAppId": "receipts", "txnVersion": "3", "topic": "out"},
        {"exactlyOnce": "false", "topic": "out"},
    ):
        BatchWriter(nowhere | left_to_tasks, SCHEMA, overwrite=False).check_brokers()
