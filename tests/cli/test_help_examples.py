"""Examples in `--help` can be pasted: each is one line, the parser takes it, and it does what it says."""

import glob
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.command_tree import all_commands
from cli.help_examples import Example, examples_in, written_examples
from cli.running import Run
from respool.cli.main import app
from respool.client.kafka.admin import create_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, alter_configs
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.client.kafka.producer_ids import init_producer_id
from respool.client.kafka.share_group_admin import alter_share_starts, describe_share_group
from respool.client.kafka.users import list_users, store_password
from respool.client.kafka.view_descriptions import all_views
from respool.operate.queue_operations import TAKES_DEAD_LETTERS
from respool.testing import Broker

EXAMPLES = written_examples()
# What cannot run here in a moment: it runs until Ctrl-C, or needs etcd, a second cluster, Spark, a stopped broker or a
# file that only a broker that runs for long has. Tests and pages of their own run these commands.
NOT_RUN = (
    "serve",
    "cluster",
    "mirror",
    "pipeline",
    # ACLs are off where nobody could change them any more: tests/cli/access runs them.
    "acl",
    "log accept-loss",
    "archive",
    # It needs a lake: tests/cli/tables runs these.
    "table",
    # Tokens need a login, and certificates a folder: tests/cli/users.
    "token",
    "tls",
)
NOT_RUN_LINES = {
    "respool consume rides --follow --since '3 hours ago'",
    "respool consume rides --group pricing --follow",
    "respool group lag billing pricing --watch",
    "respool rides generate --days 3 --rate 50",
    "respool rides generate --count 1000000 --partitions 6 --truth truth.parquet",
    "respool rides generate --rate 200 --live --for 10m",
    # It needs a transaction that hangs.
    "respool transaction abort --topic rides --partition 0 --start-offset 4711",
    # A small log has no index yet.
    "respool log dump respool-data/rides-0/*.timeindex",
    # It needs sealed partitions that are empty.
    "respool topic retire rides --yes",
    # It asks.
    "respool transaction abort billing-1",
}
# Tools that examples pipe into, if they are installed.
TOOLS = ("jq", "cut", "grep")


def test_every_command_has_an_example() -> None:
    assert all_commands().keys() - {one.command for one in EXAMPLES} == set()


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_each_example_is_one_line_on_80_columns(
    run: Run, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is wrapped is pasted as two."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = examples_in(run(*path, "--help").out)
    assert shown == [one.line for one in EXAMPLES if one.command == path]


def commands_of(example: Example) -> list[list[str]]:
    return [words[1:] for words in example.pipeline if words[0] == "respool"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.line)
def test_the_parser_takes_each_example(example: Example) -> None:
    assert commands_of(example)
    for words in commands_of(example):
        root = typer.main.get_command(app)
        parsed: list[str] = []
        _replace_callbacks(root, parsed)
        root.main(words, prog_name="respool", standalone_mode=False)
        (name,) = parsed
        assert name in (*example.command, *words[:2]), "an example of another command"


def _replace_callbacks(command: Any, parsed: list[str]) -> None:
    """Parse only."""
    for name, one in getattr(command, "commands", {}).items():
        if hasattr(one, "commands"):
            _replace_callbacks(one, parsed)
        else:
            one.callback = lambda _name=name, **_: parsed.append(_name)


def test_an_example_that_the_parser_refuses_is_found() -> None:
    with pytest.raises(Exception, match="no-such-option"):
        test_the_parser_takes_each_example(Example(("status",), "respool status --no-such-option"))


# -- for real ----------------------------------------------------------------------------------------------------------

RUN = [
    one
    for one in EXAMPLES
    if not " ".join(one.command).startswith(NOT_RUN) and one.line not in NOT_RUN_LINES
]


def test_lines_that_are_not_run_are_examples() -> None:
    assert {one.line for one in EXAMPLES} >= NOT_RUN_LINES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("examples")
    (made / "secret.txt").write_text("of the example\n")
    (made / "rides.txt").write_text("ride-7:requested\nride-9:requested\n")
    return made


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker(data=folder / "respool-data") as broker:
        yield broker


def furnish(run: Run, broker: Broker) -> None:
    """Make what the examples take for granted and an earlier one has deleted."""
    with Cluster(broker.bootstrap) as cluster:
        if "rides" not in cluster.refresh_all():
            broker.create_topic("rides", partitions=4)
            run("produce", "rides", "--file", "rides.txt", "--key-separator", ":")
        if "reminders" not in cluster.refresh_all():
            broker.create_topic("reminders", respool_delay="true")
        for topic in {"dlq.billing", "retry.billing"} - cluster.refresh_all().keys():
            broker.create_topic(topic)
        if not Path("respool-data/rides-0").exists():
            # A partition has files from its first record on; an example has created the topic again.
            run("produce", "rides", "--partition", "0", "-m", "requested")
        if "rides.v.paid" not in all_views(cluster):
            of_rides = {"respool.view.of": "rides", "respool.view.where": "tag = 'paid'"}
            create_topic(cluster, "rides.v.paid", configs=of_rides)
        if describe_share_group(cluster, "mailing") is None:
            letters = {"errors.deadletterqueue.topic.name": "dlq.mailing"}
            create_topic(cluster, "dlq.mailing", configs={TAKES_DEAD_LETTERS: "true"})
            alter_configs(cluster, ConfigResource.GROUP, "mailing", values=letters)
        # An example that creates the topic again takes the group's position with it.
        alter_share_starts(cluster, "mailing", {("rides", 0): 0})
        for group in ("billing", "pricing"):
            commit_offsets(cluster, group, {("rides", 0): OffsetAndMetadata(0)})
        init_producer_id(cluster, "billing-1", timeout_ms=60_000)
        if not list_users(cluster, ["etl"]):
            store_password(cluster, "etl", "of the example")


@pytest.mark.parametrize("example", RUN, ids=lambda one: one.line)
def test_each_example_works(
    run: Run, example: Example, folder: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RESPOOL_BROKER", broker.bootstrap)
    furnish(run, broker)
    if example.line.startswith("respool delay cancel"):
        run("produce", "reminders", "-m", "check", "--delay", "1h", "--schedule-id", "order-7")
    if example.line.startswith("respool topic create rides"):
        run("topic", "delete", "rides", "--yes")
    if example.line.startswith("respool user add etl"):
        run("user", "remove", "etl")
    if example.line.startswith("respool view create rides.v.paid"):
        run("view", "delete", "rides.v.paid", "--yes")
    given = b""
    for words in example.pipeline:
        given = carry_out(run, words, given, broker.bootstrap)
    if example.pipeline[-1][-1] == "--json":
        json.loads(given)


def carry_out(run: Run, words: list[str], given: bytes, address: str) -> bytes:
    """One command of a pipeline: what it writes."""
    if words[0] == "echo":
        return " ".join(words[1:]).encode() + b"\n"
    if words[0] == "respool":
        files = [one for word in words[1:] for one in (sorted(glob.glob(word)) or [word])]
        # The broker of an example listens on a port of its own here.
        arguments = [address if one == "127.0.0.1:9092" else one for one in files]
        ended = run(*arguments, stdin=given)
        assert ended.code == 0, ended.err
        return ended.out.encode()
    assert words[0] in TOOLS
    if shutil.which(words[0]) is None:
        return given
    done = subprocess.run(words, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
