"""A sink without Spark: tasks and drivers are called as Spark calls them, on a real broker."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import respool
from respool.spark.option_values import Options
from respool.spark.sink.protocol import TaskId
from respool.spark.sink.sink_columns import SinkColumns
from respool.spark.sink.sink_options import SinkOptions
from respool.spark.sink.stream_writer import abort_batch, commit_batch, write_task
from respool.spark.sink.task import TaskMessage
from respool.testing import Broker
from respool.wire.api_table import Api
from support.waiting import wait_until

SINK = "spark-sink-query"
COLUMNS = SinkColumns(key="key", value="value", topic=None, partition=None, headers=None)


class Died(BaseException):
    """A process ended from one moment to the next."""


@dataclass
class Query:
    """A query's life, by hand."""

    broker: Broker
    options: SinkOptions

    def task(
        self,
        run: str,
        batch: int,
        task: int,
        *,
        attempt: int = 0,
        rows: int = 5,
        version: str = "",
    ) -> TaskMessage:
        values = [f"{batch}/{task}/{number}{version}" for number in range(rows)]
        table = pa.record_batch({"key": values, "value": values})
        return write_task(
            iter([table]),
            self.options,
            COLUMNS,
            sink=SINK,
            place=TaskId(run=run, batch=batch, task=task),
            attempt=attempt,
        )

    def tasks(self, run: str, batch: int, **more: Any) -> list[TaskMessage]:
        return [self.task(run, batch, number, **more) for number in range(2)]

    def commit(self, messages: list[TaskMessage], batch: int) -> None:
        commit_batch(self.options, messages, batch)

    def abort(self, messages: list[TaskMessage], batch: int) -> None:
        abort_batch(self.options, messages, batch)

    def batch(self, run: str, batch: int, **more: Any) -> None:
        self.commit(self.tasks(run, batch, **more), batch)

    def values(self) -> list[str]:
        """What a read_committed reader sees, once what has been ended is marked so in all partitions."""
        wait_until(lambda: not self._is_ending(), "the ends of transactions written")
        table = respool.read_table("out", bootstrap=self.broker.bootstrap, columns=["value"])
        return sorted(one.decode() for one in table.column("value").to_pylist())

    def _is_ending(self) -> bool:
        with self.options.client.cluster() as cluster:
            reply = cluster.request_any(
                Api.LIST_TRANSACTIONS,
                {"state_filters": ["PrepareCommit", "PrepareAbort"], "producer_id_filters": []},
            )
            return bool(reply.transaction_states)


def rows_of(*batches: int, version: str = "", tasks: int = 2, rows: int = 5) -> list[str]:
    return sorted(
        f"{batch}/{task}/{number}{version}"
        for batch in batches
        for task in range(tasks)
        for number in range(rows)
    )


def options_of(broker: Broker, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "out", **more}
    return SinkOptions.of(Options(given), is_stream=True)
