"""Which exit code a failure ends with."""

import pytest

from respool.cli.exit_codes import ExitCode, exit_code_of
from respool.model.operator_errors import (
    EtcdUnreachable,
    NotFound,
    OperatorError,
    Unreachable,
    UsageError,
)
from respool.operate.errors import PartitionOffline


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperatorError("it failed"), ExitCode.FAILED),
        (UsageError("--from and --to contradict each other"), ExitCode.USAGE),
        (NotFound("there is no topic"), ExitCode.NOT_FOUND),
        (Unreachable("etcd does not answer"), ExitCode.UNREACHABLE),
        (EtcdUnreachable("no etcd"), ExitCode.UNREACHABLE),
        (PartitionOffline("rides", 0), ExitCode.FAILED),
    ],
)
def test_the_class_of_a_failure_decides_the_exit_code(error: OperatorError, code: ExitCode) -> None:
    assert exit_code_of(error) == code
