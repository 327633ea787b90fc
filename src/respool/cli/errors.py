"""How a command ends: its exit code, and what a person is told when it did not work.

An expected failure is a `CliError`: what happened (with the why), and what to do about it. `main.py` prints it; nobody
sees a traceback for a broker that is down or a topic that is not there.
"""

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can rely on. `respool --help` shows this table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    # 128 + SIGINT, as a shell reports a program ended by Ctrl-C.
    INTERRUPTED = 130


EXIT_CODE_MEANING = {
    ExitCode.OK: "done; also when the reader of a pipe (head, less) closed it",
    ExitCode.FAILED: "it did not work, or a check (log verify) found trouble",
    ExitCode.USAGE: "the command line or a setting is wrong",
    ExitCode.NOT_FOUND: "there is no such topic, partition, group, broker, file, ...",
    ExitCode.UNREACHABLE: "no broker, or no etcd, answers at that address",
    ExitCode.INTERRUPTED: "ended by Ctrl-C; 0 where that is how it ends: serve, cluster up, mirror",
}


class CliError(Exception):
    """A failure we expect, in words for whoever typed the command."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        # What to do now; empty when there is nothing better to say than the message.
        self.hint = hint


class UsageError(CliError):
    """The options contradict each other, or a value cannot be read."""

    exit_code = ExitCode.USAGE


class NotFound(CliError):
    """The topic, partition, group, transaction, replay, broker or file named is not there."""

    exit_code = ExitCode.NOT_FOUND


class TopicExists(CliError):
    """There is a topic of this name already."""


class PartitionOffline(CliError):
    """The broker answers, but nobody leads this partition.

    `absent` are the brokers of its cluster that have it and are not there.
    """

    def __init__(self, topic: str, partition: int, *, absent: Sequence[int] = ()) -> None:
        where = f"partition {partition} of {topic} is offline: nobody leads it now"
        if not absent:
            super().__init__(
                where,
                hint="the broker's log says why; what is damaged in its folder is shown by: respool log verify DATA",
            )
            return
        named = ", ".join(map(str, absent))
        super().__init__(
            f"{where}; brokers that have it and are not there: {named}",
            hint="it comes back with them; what has become of them is shown by: respool cluster status "
            "--etcd HOST:PORT",
        )


class NobodyLeads(CliError):
    """The broker that was asked leads the partition no more, and knows of nobody who does."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"nobody leads the partition now: {reason}",
            hint="in a cluster that may be for a moment, while another broker takes over: try again. If it stays so, "
            "the brokers may have lost etcd: look with: respool cluster status --etcd HOST:PORT",
        )


class BrokerUnreachable(CliError):
    """Nobody answers at the broker's address, or it stopped answering."""

    exit_code = ExitCode.UNREACHABLE
