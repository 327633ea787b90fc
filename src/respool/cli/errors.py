"""Exit codes, and the failures that only the command line knows.

An expected failure is an `OperatorError`: what happened, and what to do about it. `main.py` prints it; nobody sees a
traceback for a broker that is down or a topic that does not exist.
"""

from collections.abc import Sequence
from enum import IntEnum

from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError


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


def exit_code_of(error: OperatorError) -> ExitCode:
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    if isinstance(error, NotFound):
        return ExitCode.NOT_FOUND
    return ExitCode.UNREACHABLE if isinstance(error, Unreachable) else ExitCode.FAILED


class TopicExists(OperatorError):
    """There is a topic of this name already."""


class PartitionOffline(OperatorError):
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


class NobodyLeads(OperatorError):
    """The broker that was asked leads the partition no more, and knows of nobody who does."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"nobody leads the partition now: {reason}",
            hint="in a cluster that may be for a moment, while another broker takes over: try again. If it stays so, "
            "the brokers may have lost etcd: look with: respool cluster status --etcd HOST:PORT",
        )


class BrokerUnreachable(Unreachable):
    """Nobody answers at the broker's address, or it stopped answering."""
