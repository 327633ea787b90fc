"""Implements `respool rides generate`: generate events, write or print them, and summarise them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from respool.cli import output
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.cli.interrupts import CtrlC, noticing_ctrl_c
from respool.client.arrow.errors import WriteFailed
from respool.client.arrow.writing.arrow_producer import ArrowProducer
from respool.client.kafka import errors as client_errors
from respool.model.json_bytes import bytes_to_json
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.model.quantities import counted
from respool.model.times import format_ms
from respool.operate.errors import TopicExists
from respool.rides.event_table import EventTable
from respool.rides.records import RecordMaker
from respool.rides.ride_plan import DAY_MS, RidePlan
from respool.rides.ride_stream import ROWS_MAX, RideStream
from respool.rides.truth import RideTally, TruthFile

# The interval at which live events are sent.
TICK_SECONDS = 0.1
# Brokers keep messages for a week by default: older history would be deleted as it is written.
USUAL_RETENTION_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class RideTarget:
    connection: BrokerConnection
    topic: str
    compression: Any


def find_target(
    connection: BrokerConnection,
    topic: str,
    *,
    partitions: int | None,
    days: float,
    compression: str,
) -> RideTarget:
    """The target topic; if it does not exist, it is created with enough retention to keep what is written."""
    cluster = connection.connect()
    known = cluster.topics().get(topic)
    if known is None:
        settings = {}
        if days + 1 > USUAL_RETENTION_DAYS:
            settings["retention.ms"] = str(int((days + USUAL_RETENTION_DAYS) * DAY_MS))
        try:
            cluster.create_topic(topic, partitions=partitions, settings=settings)
            output.note(f"created {topic}", style="dim")
        except TopicExists:
            # Created concurrently by another client.
            known = cluster.topic(topic)
    if known is not None:
        if partitions is not None and partitions != known.partitions:
            raise UsageError(
                f"{topic} has {counted(known.partitions, 'partition')} already, not {partitions}",
                hint="leave out --partitions, or give another --topic",
            )
        _warn_of_retention(cluster, topic, days)
    return RideTarget(connection=connection, topic=topic, compression=compression)


def _warn_of_retention(cluster: Any, topic: str, days: float) -> None:
    try:
        found = {one.name: one.value for one in cluster.settings([topic])[topic]}
        kept_ms = int(found.get("retention.ms", "-1"))
    except (OperatorError, ValueError):
        # The check only produces a warning.
        return
    if 0 <= kept_ms < days * DAY_MS:
        output.note(
            f"{topic} keeps messages for {kept_ms / DAY_MS:g} days, so the oldest of {days:g} days will be deleted; "
            f"to keep them: respool topic alter {topic} --set retention.ms=-1",
            style="yellow",
        )


def print_events(plan: RidePlan, count: int, *, truth: Path | None) -> None:
    stream, maker = RideStream(plan), RecordMaker(plan.cities)
    left = count
    with _truth(truth) as truth_file:
        for table in stream.history(rows_max=min(count, ROWS_MAX)):
            table = table[:, :left].copy()  # noqa: PLW2901 - the rest is not needed
            if truth_file is not None:
                truth_file.add(table)
            for row in maker.make(table).to_pylist():
                output.print_line(_json_line(row))
            left -= table.shape[1]
            if not left:
                return


def _json_line(row: dict[str, Any]) -> str:
    return output.json_line(
        {
            "timestamp": round(row["timestamp"].timestamp() * 1000),
            "key": bytes_to_json(row["key"]),
            "value": bytes_to_json(row["value"]),
            "headers": [[one["key"], bytes_to_json(one["value"])] for one in row["headers"]],
        }
    )


def generate(
    plan: RidePlan,
    target: RideTarget | None,
    *,
    truth: Path | None,
    is_live: bool,
    live_ms: int | None,
    as_json: bool,
) -> None:
    """Generate the events and write them; without a target, write nothing."""
    began = time.monotonic()
    with (
        noticing_ctrl_c() as ctrl_c,
        _truth(truth) as truth_file,
        _errors_in_words(),
        _producer(target) as producer,
    ):
        work = _Work(plan, target, producer, truth_file)
        expected = plan.count or round((plan.rate or 0) * plan.span_ms / 1000)
        with output.progress("rides", total=expected, unit="events") as progress:
            for table in work.stream.history():
                work.add(table)
                progress.advance(table.shape[1])
                if ctrl_c.pressed:
                    break
        was_whole = not ctrl_c.pressed
        if is_live and was_whole:
            _send_live(work, ctrl_c, live_ms=live_ms)
        if producer is not None:
            producer.flush()
    _print_summary(work.tally, target, seconds=time.monotonic() - began, as_json=as_json)
    if was_whole and plan.count is not None and work.tally.events < plan.count:
        # Only with a very unlikely seed.
        raise OperatorError(
            f"only {work.tally.events:,} of {plan.count:,} events arrive before the end"
        )
    if not was_whole:
        raise typer.Exit(ExitCode.INTERRUPTED)


class _Work:
    def __init__(
        self,
        plan: RidePlan,
        target: RideTarget | None,
        producer: ArrowProducer | None,
        truth: TruthFile | None,
    ) -> None:
        self.stream = RideStream(plan)
        self.tally = RideTally()
        self._maker = RecordMaker(plan.cities)
        self._target = target
        self._producer = producer
        self._truth = truth

    def add(self, table: EventTable) -> None:
        records = self._maker.make(table)
        if self._producer is not None and self._target is not None:
            self._producer.write(records, self._target.topic)
        if self._truth is not None:
            self._truth.add(table)
        self.tally.add(table)


def _send_live(work: _Work, ctrl_c: CtrlC, *, live_ms: int | None) -> None:
    """Send events when they are due, until Ctrl-C or until the time is over."""
    # By the wall clock, like the timestamps: live events are for demos, where a clock jump may show.
    ends_ms = None if live_ms is None else _now_ms() + live_ms
    output.note("the history is written; continuing live" + ("" if live_ms else ", Ctrl-C ends it"))
    with output.progress("live", total=None, unit="events") as progress:
        while not ctrl_c.pressed:
            now_ms = _now_ms()
            before_ms = now_ms if ends_ms is None else min(now_ms, ends_ms)
            while not ctrl_c.pressed and (table := work.stream.take(before_ms)) is not None:
                work.add(table)
                progress.advance(table.shape[1])
            if ends_ms is not None and now_ms >= ends_ms:
                return
            time.sleep(TICK_SECONDS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _truth(path: Path | None) -> Iterator[TruthFile | None]:
    if path is None:
        yield None
        return
    with TruthFile(path) as file:
        yield file


def _producer(target: RideTarget | None) -> Any:
    if target is None:
        return nullcontext()
    connection = target.connection
    settings = {} if connection.config is None else connection.config.cluster_settings()
    # How long transient errors are retried; for a producer that is how long a batch is.
    if "retry_ms" in settings:
        settings["delivery_timeout_ms"] = settings.pop("retry_ms")
    return ArrowProducer(
        connection.bootstrap,
        compression=target.compression,
        security=connection.security,
        **settings,
    )


@contextmanager
def _errors_in_words() -> Iterator[None]:
    try:
        yield
    except client_errors.BrokerUnreachable as error:
        raise Unreachable(str(error)) from error
    except client_errors.UnknownTopic as error:
        raise NotFound(str(error)) from error
    except WriteFailed as error:
        why = next((part.error for part in error.partitions.values() if part.error), str(error))
        raise OperatorError(
            f"{error.result.rows_in:,} events are in, {error.result.rows_not_in:,} are not: {why}",
            hint="the same seed and --until, written into a new topic, give all of them",
        ) from error
    except client_errors.ClientError as error:
        raise OperatorError(str(error)) from error


def _print_summary(
    tally: RideTally, target: RideTarget | None, *, seconds: float, as_json: bool
) -> None:
    document = tally.document()
    if as_json:
        output.print_json({"topic": target.topic if target else None, **document})
        return
    rows: list[tuple[str, str, int]] = []
    for what in ("types", "malformed", "fraud"):
        found = document[what]
        assert isinstance(found, dict)
        name = {"types": "events", "fraud": "fraudulent rides"}.get(what, what)
        rows += [(name, kind, number) for kind, number in found.items()]
    rows += [("late", "", tally.late), ("sent again", "", tally.duplicates)]
    output.print_rows(output.Headings("what", "kind", "number", numbers=["number"]), rows)
    where = f" written to {target.topic}" if target else " made, none written"
    span = f", {format_ms(tally.first_ms)} to {format_ms(tally.last_ms)}" if tally.events else ""
    output.note(
        f"{counted(tally.events, 'event')} of {counted(tally.rides, 'ride')}{where} "
        f"in {seconds:.1f} seconds{span}"
    )
