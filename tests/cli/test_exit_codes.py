"""Every command ends as `respool --help` says: a table of what goes wrong, and the exit codes."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command_tree import all_commands, has_option
from cli.running import Run
from respool.cli.exit_codes import ExitCode, exit_code_of
from respool.model.operator_errors import (
    EtcdUnreachable,
    NotFound,
    OperatorError,
    Unreachable,
    UsageError,
)
from respool.operate.errors import PartitionOffline
from respool.testing import Broker
from support.quick_broker import quick_broker

# Nothing listens on port 1.
NOBODY = "127.0.0.1:1"
MISSING = "/there/is/no/such/place"
BAD_NAME = "a/b"

# A command line of each command that talks to brokers or to etcd, which would be right if it could.
TO_BROKERS = {
    "status": "",
    "produce": "rides -m hello",
    "consume": "rides",
    "topic create": "rides",
    "topic list": "",
    "topic describe": "rides",
    "topic alter": "rides --partitions 3",
    "topic shrink": "rides --to 1 --yes",
    "topic retire": "rides --yes",
    "topic delete": "rides --yes",
    "view create": "rides.v.tagged --of rides --where exists(tag)",
    "view list": "",
    "view describe": "rides.v.tagged",
    "view try": "rides --where exists(tag)",
    "view delete": "rides.v.tagged --yes",
    "config describe": "broker",
    "config alter": "broker --set log.retention.ms=1d",
    "group list": "",
    "group describe": "billing",
    "group lag": "",
    "group reset": "billing --to-earliest --yes",
    "group delete": "billing --yes",
    "transaction list": "",
    "transaction describe": "billing-1",
    "transaction abort": "billing-1 --yes",
    "transaction hanging": "",
    "replay run": "rides --from 1h --into again",
    "replay list": "",
    "mirror promote": "rides",
    "delay list": "rides",
    "delay cancel": "rides reminder-7",
    "delay stats": "rides",
    "queue list": "",
    "queue describe": "billing",
    "queue create": "billing --topic rides --from earliest",
    "queue peek": "billing",
    "queue dead": "billing",
    "queue redrive": "billing --yes",
    "dlq list": "",
    "dlq show": "billing",
    "dlq replay": "billing",
    "dlq purge": "billing --yes",
    "rides generate": "--count 5",
    "table create": "rides --format delta --at lake",
    "table run": "rides",
    "table status": "rides",
    "table compact": "rides",
    "table expire": "rides",
    "acl list": "",
    "acl create": "--principal User:billing -o read -r topic:orders",
    "acl delete": "--principal User:billing -r topic:orders --yes",
    "acl check": "User:billing read topic:orders",
    "acl off": "",
    "acl observe": "",
    "acl enforce": "",
    "quota list": "",
    "quota set": "--user billing producer_byte_rate=10MB",
    "quota remove": "--user billing",
    "user list": "",
    "user add": "etl",
    "user password": "etl",
    "user remove": "etl",
    "token create": "",
    "token list": "",
    "token renew": "2f1c8a",
    "token expire": "2f1c8a",
}
BETWEEN_CLUSTERS = {"mirror run": "--topics rides --once", "mirror status": "--topics rides"}
TO_ETCD = {
    "cluster status": "",
    "cluster drain": "1",
    "cluster remove": "1 --yes",
    "cluster add": "1",
    "cluster balance": "--yes",
    "cluster elect": "--yes",
    "cluster throttle": "50MB",
}
# What is not there.
ON_FILES = {
    "log dump": MISSING,
    "log verify": MISSING,
    "log accept-loss": f"{MISSING} rides-0 --yes",
    "pipeline report": f"--data {MISSING}",
    "pipeline clean": f"--data {MISSING}",
    "serve": f"--config {MISSING}",
    "archive status": f"file://{MISSING}",
    "archive verify": f"file://{MISSING}",
    "archive get": f"file://{MISSING} --topic rides --to copies",
    "archive restore": f"file://{MISSING} --to restored",
    "archive collect": f"file://{MISSING}",
    "cluster status": f"--config {MISSING}",
    "produce": f"rides --file {MISSING}",
    "tls show": f"--folder {MISSING}",
    "tls renew": f"--folder {MISSING}",
}
# Their failures need Spark, or etcd and child processes: tests/cli/pipelines/test_pipeline_command.py and
# tests/cli/cluster/test_up.py; or they read nothing: tests/cli/shell,
# users/test_tls_commands.py.
ELSEWHERE = {"pipeline run", "cluster up", "completion", "man", "tls issue"}


def words(text: str) -> list[str]:
    return text.split()


def test_every_command_is_in_a_table() -> None:
    named = {" ".join(path) for path in all_commands()}
    assert named == {*TO_BROKERS, *BETWEEN_CLUSTERS, *TO_ETCD, *ON_FILES} | ELSEWHERE


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


# -- 4: nobody answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", TO_BROKERS)
def test_no_broker_is_4(run: Run, command: str) -> None:
    ended = run(*words(command), *words(TO_BROKERS[command]), "--broker", NOBODY)
    assert ended.code == ExitCode.UNREACHABLE, ended.err
    assert NOBODY in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("command", BETWEEN_CLUSTERS)
def test_no_broker_to_mirror_from_is_4(run: Run, command: str) -> None:
    places = ("--from", NOBODY, "--to", "127.0.0.1:2")
    ended = run(*words(command), *words(BETWEEN_CLUSTERS[command]), *places)
    assert ended.code == ExitCode.UNREACHABLE, ended.err
    assert ended.out == ""


@pytest.mark.parametrize("command", TO_ETCD)
def test_no_etcd_is_4(run: Run, command: str) -> None:
    ended = run(*words(command), *words(TO_ETCD[command]), "--etcd", NOBODY)
    assert ended.code == ExitCode.UNREACHABLE, ended.err
    assert ended.out == ""


# -- 3: there is no such thing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ON_FILES)
def test_a_missing_file_is_3(run: Run, command: str) -> None:
    ended = run(*words(command), *words(ON_FILES[command]))
    assert ended.code == ExitCode.NOT_FOUND, ended.err
    assert MISSING in ended.err


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker({"auto_create_topics": False}) as broker:
        broker.create_topic("rides", partitions=2)
        yield broker


@pytest.mark.parametrize(
    "line",
    [
        "produce none -m x",
        "produce rides -m x --partition 9",
        "consume none",
        "consume rides --partition 9",
        "topic describe none",
        "topic alter none --partitions 3",
        "topic shrink none --to 1 --yes",
        "topic retire none --yes",
        "topic delete none --yes",
        "group describe none",
        "group lag none",
        "group delete none --yes",
        "queue describe none",
        "queue create new --topic none --from latest",
        "queue peek none",
        "queue dead none",
        "queue redrive none --yes",
        "transaction describe none",
        "transaction abort none --yes",
        "transaction abort --topic rides --partition 9 --start-offset 0 --yes",
        "transaction hanging none",
        "replay run none --from 1h --into again",
        "replay run --resume none",
        "mirror promote none",
    ],
)
def test_what_is_not_there_is_3(run: Run, broker: Broker, line: str) -> None:
    ended = run(*words(line), "--broker", broker.bootstrap)
    assert ended.code == ExitCode.NOT_FOUND, ended.err
    assert ended.err.startswith("error: ")


# -- 2: the command line is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_an_unknown_option_is_2(run: Run, path: tuple[str, ...]) -> None:
    ended = run(*path, "--no-such-option")
    assert ended.code == ExitCode.USAGE
    assert "--no-such-option" in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    "line",
    [
        f"produce {BAD_NAME} -m x",
        f"consume {BAD_NAME}",
        f"topic create {BAD_NAME}",
        f"topic describe rides {BAD_NAME}",
        f"topic alter {BAD_NAME} --partitions 3",
        f"topic delete {BAD_NAME} --yes",
        f"group reset billing --topic {BAD_NAME}:0 --to-latest --yes",
        f"transaction abort --topic {BAD_NAME} --partition 0 --start-offset 0 --yes",
        f"transaction hanging {BAD_NAME}",
        f"replay run {BAD_NAME} --from 1h --into again",
        f"replay run rides --from 1h --into {BAD_NAME}",
        f"mirror promote {BAD_NAME}",
        f"rides generate --count 5 --topic {BAD_NAME}",
    ],
)
def test_a_name_that_no_topic_can_have_is_2_before_a_broker_is_asked(run: Run, line: str) -> None:
    ended = run(*words(line), "--broker", NOBODY)
    assert ended.code == ExitCode.USAGE
    assert "'a/b' has characters" in " ".join(ended.err.split())


@pytest.mark.parametrize(
    "line",
    [
        f"cluster elect {BAD_NAME} --yes --etcd {NOBODY}",
        f"pipeline run bronze --topic {BAD_NAME} --bootstrap {NOBODY}",
        f"pipeline run fraud --scores-topic {BAD_NAME} --bootstrap {NOBODY}",
    ],
)
def test_a_name_that_no_topic_can_have_is_2_elsewhere_too(run: Run, line: str) -> None:
    assert run(*words(line)).code == ExitCode.USAGE


@pytest.mark.parametrize(
    "line",
    [
        "status --timeout soon",
        "produce rides -m x --compression brotli",
        "produce rides -m x --acks 7",
        "produce rides -m x --header nothing",
        "consume rides --isolation some",
        "consume rides --offset middle",
        "consume rides --since whenever",
        "consume rides --format {nothing}",
        "topic create new --partitions none",
        "topic create new --partitions 0",
        "topic create new --set retention.ms=x",
        "topic create new --set no.such.setting=1",
        "topic alter rides",
        "topic alter rides --partitions 1",
        "topic alter rides --unset no.such.setting",
        "topic describe rides --keys --scan some",
        # It would show no groups, as if there were none.
        "group list --state Broken",
        "group reset billing --topic rides --yes",
        "group reset billing --topic rides --to-time whenever --yes",
        "queue create new",
        "queue create new --topic rides",
        "queue create new --from earliest",
        "queue create new --from middle --topic rides",
        "queue create new --retry-delays 1s,soon",
        "queue create new --attempts 99",
        "queue create new --lock 1ms",
        "queue create new --order value",
        "queue dead new --where never",
        "transaction list --state Broken",
        "transaction list --open-longer-than x",
        "transaction abort --yes",
        "replay run rides",
        "replay run rides --from whenever --into again",
        "replay run rides --from 1h --into again --speed fast",
        "replay run rides --from 1h --into again --compression brotli",
        "rides generate --count 5 --fraud-share 7",
        "topic list --security-protocol TLS",
        f"topic list --client-config {MISSING}",
        # There is no terminal to ask on.
        "topic delete rides",
    ],
)
def test_a_value_that_cannot_be_is_2(run: Run, broker: Broker, line: str) -> None:
    ended = run(*words(line), "--broker", broker.bootstrap)
    assert ended.code == ExitCode.USAGE, ended.err
    assert ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    "line",
    [
        "topic list --broker nowhere",
        f"mirror run --topics rides --from {NOBODY} --to {NOBODY}",
        f"mirror run --topics rides --interval soon --from {NOBODY} --to 127.0.0.1:2",
        f"cluster throttle fast --etcd {NOBODY}",
        f"cluster drain one --etcd {NOBODY}",
        "cluster up --brokers 0",
        "cluster up --set no_such_setting=1",
        "pipeline run nothing",
        "pipeline run silver --every soon",
        "serve --log-level loud",
        "serve --listen nowhere",
        "serve --listen 0.0.0.0:0",
        "serve --set no_such_setting=1",
        "log dump rides.log --limit many",
    ],
)
def test_a_value_that_cannot_be_is_2_elsewhere_too(run: Run, tmp_path: Path, line: str) -> None:
    data = ("--data", str(tmp_path)) if line.startswith(("serve", "cluster up")) else ()
    ended = run(*words(line), *data)
    assert ended.code == ExitCode.USAGE, ended.err
    assert ended.out == ""


def test_no_cluster_named_is_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RESPOOL_ETCD", raising=False)
    for command, arguments in TO_ETCD.items():
        assert run(*words(command), *words(arguments)).code == ExitCode.USAGE


# -- 1: it did not work ------------------------------------------------------------------------------------------------


def test_a_topic_that_is_there_already_is_1(run: Run, broker: Broker) -> None:
    assert run("topic", "create", "rides", "--broker", broker.bootstrap).code == ExitCode.FAILED


def test_a_cluster_whose_etcd_is_away_creates_no_topic_and_that_is_1(
    run: Run, broker: Broker
) -> None:
    """A broker that cannot reach its metadata store answers so; the broker itself is there."""
    with broker.faults.answer_with_error("REQUEST_TIMED_OUT", "CreateTopics", times=None):
        ended = run("topic", "create", "new", "--broker", broker.bootstrap)
    assert ended.code == ExitCode.FAILED
    assert "REQUEST_TIMED_OUT" in ended.err
    assert ended.out == ""


# -- 130: Ctrl-C -------------------------------------------------------------------------------------------------------


# Ctrl-C goes to whom the terminal belongs to.
ON_A_TERMINAL = """
import os, sys
os.login_tty(0)
from respool.cli.main import main
sys.exit(main())
"""


def answer(broker: Broker, typed: bytes) -> tuple[int, str]:
    """`respool topic delete rides` on a terminal, with this typed at its question: its exit code and its output."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, "topic", "delete", "rides", "-b", broker.bootstrap],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    )
    os.close(its_end)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 1_000)
    os.write(terminal, typed)
    try:
        while more := os.read(terminal, 1_000):
            shown += more
    except OSError:
        # Linux says so when the other end is closed.
        pass
    os.close(terminal)
    return process.wait(), shown.decode()


def test_ctrl_c_at_a_question_is_130_and_changes_nothing(run: Run, broker: Broker) -> None:
    code, shown = answer(broker, b"\x03")
    assert code == ExitCode.INTERRUPTED
    assert "nothing was changed" in shown
    assert "Traceback" not in shown
    assert run("topic", "describe", "rides", "--broker", broker.bootstrap).code == ExitCode.OK


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"], ids=["no", "nothing", "end of input"])
def test_an_answer_other_than_yes_is_1_and_changes_nothing(
    run: Run, broker: Broker, typed: bytes
) -> None:
    code, shown = answer(broker, typed)
    assert code == ExitCode.FAILED
    assert "nothing was changed" in shown
    assert run("topic", "describe", "rides", "--broker", broker.bootstrap).code == ExitCode.OK


def test_every_question_can_be_answered_on_the_command_line() -> None:
    """So that scripts never wait: each command that asks has --yes."""
    asking = [path for path, command in all_commands().items() if has_option(command, "--yes")]
    assert [" ".join(path) for path in asking] == [
        "topic shrink",
        "topic retire",
        "topic delete",
        "view delete",
        "group reset",
        "group delete",
        "queue redrive",
        "acl delete",
        "transaction abort",
        "dlq purge",
        "log accept-loss",
        "cluster drain",
        "cluster remove",
        "cluster add",
        "cluster balance",
        "cluster elect",
        "mirror promote",
    ]
