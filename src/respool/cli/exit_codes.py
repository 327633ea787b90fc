"""Exit codes of commands.

An expected failure is an `OperatorError`: it says what happened and what to do about it. `main.py` prints it, so a
broker that is down or a missing topic never shows a traceback.
"""

from enum import IntEnum

from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError


class ExitCode(IntEnum):
    """Exit codes that scripts can rely on. `respool --help` shows this table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    # 128 + SIGINT, the exit code that shells report after Ctrl-C.
    INTERRUPTED = 130


EXIT_CODE_MEANING = {
    ExitCode.OK: "done; also when the reader of a pipe (head, less) closed it",
    ExitCode.FAILED: "it did not work, or a check (log verify) found problems",
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
