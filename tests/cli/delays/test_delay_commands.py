"""`respool delay`, and `respool produce` with delays."""

from collections.abc import Iterator

import pytest

from cli.commands import Commands
from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"plain": 1}) as running:
        running.create_topic("reminders", partitions=2, respool_delay="true")
        yield running


class DelayCommands(Commands):
    def produce(self, *arguments: str) -> None:
        self("produce", "reminders", *arguments)

    def waiting(self, *arguments: str) -> list[tuple[str | None, str]]:
        found = self.json("delay", "list", "reminders", *arguments)
        assert found["waiting_count"] == len(found["messages"])
        return [(one["id"], one["kind"]) for one in found["messages"]]


@pytest.fixture
def commands(run: Run, broker: Broker) -> DelayCommands:
    return DelayCommands(run, broker)


def test_what_waits_is_listed_in_the_order_of_delivery(
    commands: DelayCommands, broker: Broker
) -> None:
    commands.produce("-m", "late", "--delay", "2h", "--schedule-id", "late", "-p", "0")
    commands.produce("-m", "soon", "--delay", "1h", "--schedule-id", "soon", "-p", "1")
    commands.produce("-m", "now")
    commands.produce("-m", "tick", "-H", "respool-schedule=@every 90m", "-p", "1")
    assert commands.waiting() == [("soon", "once"), (None, "schedule"), ("late", "once")]
    assert commands.waiting("--partition", "0") == [("late", "once")]
    broker.clock.advance(minutes=100)
    # The schedule comes again.
    assert commands.waiting() == [("late", "once"), (None, "schedule")]
    listed = commands.json("delay", "list", "reminders")["messages"]
    until = str(listed[0]["due_ms"])
    assert commands.waiting("--until", until) == [("late", "once")]
    assert commands.json("delay", "list", "reminders", "--limit", "1")["waiting_count"] == 2


def test_cancelled_and_replaced_messages_are_not_listed(commands: DelayCommands) -> None:
    commands.produce("-m", "a", "--delay", "1h", "--schedule-id", "a", "-p", "0")
    commands.produce("-m", "b", "--delay", "1h", "--schedule-id", "b", "-p", "1")
    commands.produce("-m", "b", "--delay", "2h", "--schedule-id", "b", "-p", "1")
    cancelled = commands.json("delay", "cancel", "reminders", "a")
    assert [one["id"] for one in cancelled["messages"]] == ["a"]
    assert commands.waiting() == [("b", "once")]
    again = commands("delay", "cancel", "reminders", "a", code=ExitCode.NOT_FOUND)
    assert "no message with id 'a' waits in reminders" in again.err


def test_cancelled_message_is_not_delivered(commands: DelayCommands, broker: Broker) -> None:
    commands.produce("-m", "a", "--delay", "1h", "--schedule-id", "a", "-p", "0")
    commands("delay", "cancel", "reminders", "a")
    broker.clock.advance(hours=2)
    read = commands("consume", "reminders", "--from-beginning")
    assert read.out == ""


def test_stats_count_by_partition(commands: DelayCommands) -> None:
    commands.produce("-m", "a", "-m", "b", "--delay", "1h", "-p", "1")
    first, second = commands.json("delay", "stats", "reminders")["partitions"]
    assert (first["waiting_count"], first["next_ms"]) == (0, None)
    assert (second["waiting_count"], second["schedule_count"]) == (2, 0)
    assert second["next_ms"] <= second["last_ms"]


def test_topic_without_delays_is_said_to_be_one(commands: DelayCommands) -> None:
    refused = commands("delay", "list", "plain", code=ExitCode.USAGE)
    assert "was not created with respool.delay=true" in refused.err
    refused = commands("produce", "plain", "-m", "a", "--delay", "1h", code=ExitCode.USAGE)
    assert "delivers messages at once" in refused.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--delay", "1h", "--at", "now"), "cannot both be given"),
        (("--delay", "soon"), "--delay: 'soon'"),
        (("--at", "someday"), "--at: 'someday'"),
        (("--schedule-id", "a"), "needs --delay or --at"),
        (("--schedule-id", "", "--delay", "1h"), "is empty"),
    ],
)
def test_malformed_option_is_refused(
    commands: DelayCommands, arguments: tuple[str, ...], reason: str
) -> None:
    refused = commands("produce", "reminders", "-m", "a", *arguments, code=ExitCode.USAGE)
    assert reason in refused.err
    assert commands.waiting() == []


def test_tomorrow_is_a_time(commands: DelayCommands) -> None:
    commands.produce("-m", "a", "--at", "tomorrow 08:00", "-p", "0")
    commands.produce("-m", "b", "--at", "tomorrow", "-p", "0")
    later, earlier = commands.json("delay", "list", "reminders")["messages"][::-1]
    assert later["due_ms"] - earlier["due_ms"] == 8 * 3_600_000
