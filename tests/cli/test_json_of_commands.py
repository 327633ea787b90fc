"""Every command with `--json` prints one object, or one in each line, of the shape of docs/json.md: data, not prose."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cli.command_tree import all_commands, has_option
from cli.json_shape import check_shape
from cli.running import Run
from respool.cli.pipelines import pipeline_run
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.pipeline.jobs import JobOutcome
from respool.testing import Broker

HERE = Path(__file__).parent
# By the line that is run, in this order; {data} is the broker's folder, and {other} another broker.
LINES = [
    "status",
    "produce rides -m ride-7:one -m ride-9:two --key-separator :",
    "consume rides",
    "topic create fares --partitions 2",
    "topic list --internal",
    "topic describe rides fares",
    "topic describe rides --keys",
    "topic alter fares --set retention.ms=1d",
    "view try rides --where exists(tag)",
    "view create rides.v.tagged --of rides --where exists(tag) --listed",
    "view list",
    "view describe rides.v.tagged",
    "topic describe rides.v.tagged",
    "view delete rides.v.tagged --yes",
    "topic create reminders --set respool.delay=true",
    "produce reminders -m drink --delay 1h --schedule-id water",
    "delay list reminders",
    "delay stats reminders",
    "delay cancel reminders water",
    "config describe broker 1",
    "config alter broker --set log.retention.ms=30d",
    "config describe group billing",
    "group list",
    "group describe billing",
    "group lag",
    "group reset billing --to-earliest --yes --dry-run",
    "group reset billing --to-latest --yes",
    "acl observe",
    "acl create --principal User:ANONYMOUS --operation all --resource cluster",
    "acl enforce",
    "acl create --principal User:billing --operation read --resource topic:rides",
    "acl list",
    "acl check User:billing read topic:rides",
    "acl delete --principal User:billing --yes",
    "acl off",
    "quota set --user billing producer_byte_rate=10MB",
    "quota list",
    "quota remove --user billing",
    "queue create mails --topic fares --from earliest --dead-letters dlq.mails --attempts 3",
    "queue list",
    "queue describe mails",
    "produce fares -m one",
    "queue peek mails",
    "queue dead mails",
    "queue redrive mails --to letters --yes",
    "transaction list",
    "transaction describe open",
    "transaction hanging",
    "user add etl",
    "user password etl",
    "user list",
    "user remove etl",
    "replay run rides --from 1h --into again --dry-run",
    "replay run rides --from 1h --into again",
    "replay run rides --from 1h --group check",
    "replay list",
    "topic create dlq.billing",
    "produce dlq.billing -m one",
    "dlq list",
    "dlq show billing",
    "dlq replay billing --to letters",
    "dlq purge billing --yes",
    "rides generate --until 2026-11-12T08:00Z --count 20 --topic generated",
    "mirror run --topics rides --once",
    "mirror status --topics rides",
    "mirror promote rides",
    "transaction abort open --yes",
    "topic create wide --partitions 4",
    "topic shrink wide --to 2 --yes",
    "topic retire wide --yes",
    "topic delete fares --yes",
    "group delete billing --yes",
    "log dump {data}/rides-0/00000000000000000000.log",
    "log verify {data}",
    "tls issue broker-1 --host localhost --folder {data}/certificates",
    "tls show --folder {data}/certificates",
    "tls renew --folder {data}/certificates",
]
# In files of their own, with an etcd, a table or an archive: the fixtures of this folder check what they print, too.
ELSEWHERE = {
    "archive status": "archives/test_archive_commands.py",
    "table create": "tables/test_table_commands.py",
    "table run": "tables/test_table_commands.py",
    "table status": "tables/test_table_commands.py",
    "table compact": "tables/test_table_commands.py",
    "table expire": "tables/test_table_commands.py",
    "cluster status": "cluster/test_commands.py",
    "cluster drain": "cluster/test_commands.py",
    "cluster remove": "cluster/test_commands.py",
    "cluster add": "cluster/test_commands.py",
    "cluster balance": "cluster/test_commands.py",
    "cluster elect": "cluster/test_elect.py",
    "cluster throttle": "cluster/test_broker_commands.py",
    "token create": "users/test_token_commands.py",
    "token list": "users/test_token_commands.py",
    "token renew": "users/test_token_commands.py",
    "token expire": "users/test_token_commands.py",
}
ON_SPARK = "pipeline run"
JSON_OPTIONS = {"mirror run": "--status-json"}
BETWEEN_CLUSTERS = ("mirror run", "mirror status")
WITHOUT_BROKER = ("log ", "tls ")


def command_of(line: str) -> str:
    names = [" ".join(path) for path in all_commands()]
    return next(name for name in names if f"{line} ".startswith(f"{name} "))


def commands_with_json() -> set[str]:
    return {
        " ".join(path)
        for path, command in all_commands().items()
        if has_option(command, "--json") or has_option(command, "--status-json")
    }


def test_the_page_says_what_each_command_prints() -> None:
    page = (HERE.parents[1] / "docs" / "json.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`-][^`]*)`", row)}
    assert named == commands_with_json()


def test_every_command_with_json_is_run() -> None:
    assert commands_with_json() == {command_of(line) for line in LINES} | ELSEWHERE.keys() | {
        ON_SPARK
    }


@pytest.mark.parametrize("command", ELSEWHERE)
def test_commands_with_files_of_their_own_are_run_with_json_there(command: str) -> None:
    text = (HERE / ELSEWHERE[command]).read_text()
    _, name = command.split()
    calls = [*text.splitlines(), *re.findall(r"\.json\([^)]*\)", text)]
    assert any(f'"{name}"' in call and ('"--json"' in call or ".json(" in call) for call in calls)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json") / "data"


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Broker]:
    """With a group that lags behind, and a transaction that stays open."""
    with Broker(data=data, topics={"rides": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("rides", b"uncommitted", partition=1)
        producer.flush()
        with Cluster(broker.bootstrap) as cluster:
            commit_offsets(cluster, "billing", {("rides", 0): OffsetAndMetadata(0)})
        yield broker


@pytest.fixture(scope="module")
def other() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.xdist_group("json of commands")
def test_each_command_prints_data(run: Run, broker: Broker, other: Broker, data: Path) -> None:
    """One story: later lines show what earlier ones did."""
    wrong: dict[str, str] = {}
    for line in LINES:
        try:
            for document in documents(run, line, broker, other, data):
                check_shape(document)
        except (AssertionError, ValueError) as error:
            wrong[line] = str(error)
    assert wrong == {}


def documents(run: Run, line: str, broker: Broker, other: Broker, data: Path) -> list[Any]:
    command = command_of(line)
    words = line.format(data=data).split()
    if command in BETWEEN_CLUSTERS:
        words += ["--from", broker.bootstrap, "--to", other.bootstrap]
    elif command == "mirror promote":
        words += ["--to", other.bootstrap]
    elif not command.startswith(WITHOUT_BROKER):
        words += ["--broker", broker.bootstrap]
    ended = run(*words, JSON_OPTIONS.get(command, "--json"))
    assert ended.code == 0, ended.err
    try:
        return [json.loads(ended.out)]
    except json.JSONDecodeError:
        found = [json.loads(one) for one in ended.out.splitlines()]
        assert found, "it printed nothing"
        return found


def test_a_pipeline_s_jobs_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = JobOutcome(job="gold", counts={"fares": 5}, figures={"auc": 0.5}, files=("a b.html",))
    pipeline_run.print_outcomes([outcome], as_json=True)
    check_shape(json.loads(capsys.readouterr().out))
