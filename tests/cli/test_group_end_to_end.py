"""`respool group` against a real broker, with real consumers in the groups."""

import json
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from cli.real_broker import START_MS, WAIT_SECONDS, ConsumerChild, Shell, started
from cli.running import Run
from respool.model.times import format_ms
from respool.replay.audit import AUDIT_TOPIC
from support.broker_process import BrokerProcess
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("cli-groups")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory.mktemp("groups")) as running:
        yield running


@pytest.fixture
def shell(run: Run, broker: BrokerProcess) -> Shell:
    return Shell(run, broker)


def commit(shell: Shell, group: str, topic: str, *offsets: int) -> None:
    """As a consumer does that has read so far and gone."""
    consumer = Consumer({"bootstrap.servers": shell.broker.address, "group.id": group})
    places = [
        TopicPartition(topic, number, offset, metadata="by hand")
        for number, offset in enumerate(offsets)
    ]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(shell: Shell, group: str) -> list[int | None]:
    found = shell.json("group", "describe", group)
    return [each["committed"] for each in found["partitions"]]


def test_a_group_is_listed_described_and_deleted(shell: Shell) -> None:
    shell.topic("life", partitions=2, messages=10)
    commit(shell, "life-group", "life", 3, 5)
    assert "life-group\tEmpty\tclassic\n" in shell.run("group", "list").out
    assert shell.run("group", "list", "--state", "stable").out == ""
    assert shell.run("group", "lag", "life-group").out.splitlines() == [
        "life-group\tlife\t0\t3\t5\t2",
        "life-group\tlife\t1\t5\t5\t0",
    ]
    [lag] = shell.json("group", "lag", "life-group")["groups"]
    assert (lag["lag"], lag["partitions"][0]["metadata"]) == (2, "by hand")
    asked = shell.run("group", "delete", "life-group", code=2)
    assert "--yes" in asked.err
    shell.run("group", "delete", "life-group", "--yes")
    missing = shell.run("group", "describe", "life-group", code=3)
    assert "there is no group 'life-group'" in missing.err


def test_lag_without_names_is_that_of_all_groups(shell: Shell) -> None:
    shell.topic("every", partitions=1, messages=3)
    commit(shell, "every-1", "every", 1)
    commit(shell, "every-2", "every", 3)
    lines = shell.run("group", "lag").out.splitlines()
    assert {"every-1\tevery\t0\t1\t3\t2", "every-2\tevery\t0\t3\t3\t0"} <= set(lines)
    found = {each["group"]: each["lag"] for each in shell.json("group", "lag")["groups"]}
    assert (found["every-1"], found["every-2"]) == (2, 0)


def test_lag_is_watched_until_ctrl_c(shell: Shell) -> None:
    shell.topic("watched", partitions=1, messages=3)
    commit(shell, "watched-group", "watched", 1)
    process = shell.begin("group", "lag", "watched-group", "--watch", "--json")
    assert process.stdout is not None
    [lag] = json.loads(process.stdout.readline())["groups"]
    assert (lag["group"], lag["lag"]) == ("watched-group", 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130


def test_a_group_that_is_misspelt_is_guessed(shell: Shell) -> None:
    shell.topic("guess", partitions=1, messages=1)
    commit(shell, "billing", "guess", 0)
    assert "did you mean billing?" in shell.run("group", "describe", "biling", code=3).err


@pytest.mark.parametrize(
    ("option", "to"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [50, 50]),
        (["--to-offset", "30"], [30, 30]),
        (["--shift-by", "-5"], [15, 35]),
        (["--shift-by", "20"], [40, 50]),
        # Messages are a second apart and go round: at 08:01:00 comes number 60, the 30th of partition 0.
        (["--to-time", "2025-11-14 08:01Z"], [30, 30]),
        (["--to-time", "now"], [50, 50]),
        (["--to-offset", "7", "--topic", "reset:1"], [20, 7]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_each_way_of_resetting_goes_where_it_says(
    shell: Shell, option: list[str], to: list[int]
) -> None:
    if "reset" not in shell.run("topic", "list").out:
        shell.topic("reset", partitions=2, messages=100)
    commit(shell, "reset-group", "reset", 20, 40)
    dry = shell.json("group", "reset", "reset-group", *option, "--dry-run")
    assert committed(shell, "reset-group") == [20, 40]
    done = shell.json("group", "reset", "reset-group", *option, "--yes")
    assert done == dry | {"dry_run": False}
    assert committed(shell, "reset-group") == to
    assert done["replays"] == sum(max(0, old - new) for old, new in zip([20, 40], to, strict=True))
    assert done["skips"] == sum(max(0, new - old) for old, new in zip([20, 40], to, strict=True))


def test_a_reset_also_covers_partitions_where_nothing_was_committed(shell: Shell) -> None:
    shell.topic("partly", partitions=3, messages=9)
    commit(shell, "partly-group", "partly", 3)
    done = shell.run("group", "reset", "partly-group", "--to-latest", "--yes")
    assert "0 messages to read in 2 partitions where it had committed nothing" in done.err
    assert "partly-group was moved in 2 partitions" in done.err
    # A consumer that begins at the earliest where it finds no offset reads none of what was skipped.
    assert committed(shell, "partly-group") == [3, 3, 3]
    shifted = shell.run("group", "reset", "partly-group", "--shift-by", "-1", "--yes")
    assert "moved in 3 partitions" in shifted.err


def test_a_reset_shows_its_table_tells_what_it_clamped_and_asks(shell: Shell) -> None:
    shell.topic("asked", partitions=1, messages=10)
    commit(shell, "asked-group", "asked", 4)
    refused = shell.run("group", "reset", "asked-group", "--to-offset", "99", code=2)
    assert refused.out == "asked\t0\t4\t10\t0\t6\n"
    assert "asked/0 holds offsets 0 to 10, not 99: 10 instead" in refused.err
    assert "skips 6 messages" in refused.err
    assert "--yes" in refused.err
    assert committed(shell, "asked-group") == [4]


def test_a_new_group_can_be_placed_when_its_topic_is_named(shell: Shell) -> None:
    shell.topic("placed", partitions=1, messages=10)
    unknown = shell.run("group", "reset", "placed-group", "--to-earliest", "--yes", code=3)
    assert "no group 'placed-group'" in unknown.err
    shell.run("group", "reset", "placed-group", "--topic", "placed", "--to-offset", "6", "--yes")
    assert committed(shell, "placed-group") == [6]
    shell.run("group", "reset", "placed-group", "--topic", "plaiced", "--to-offset", "6", code=3)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_is_explained_and_forced_to_resume_from_the_new_place(
    shell: Shell, protocol: str
) -> None:
    topic, group = f"live-{protocol}", f"live-group-{protocol}"
    shell.topic(topic, partitions=2, messages=40)
    with ConsumerChild(shell.broker, group, topic, protocol=protocol) as child:
        child.wait_for([(0, 19), (1, 19)])
        [member] = shell.json("group", "describe", group)["members"]
        assert (member["client_id"], len(member["partitions"])) == ("child", 2)
        wait_until(lambda: committed(shell, group) == [20, 20], "all is committed")

        to_time = ["--to-time", f"@{START_MS + 30_000}"]
        dry = shell.run("group", "reset", group, *to_time, "--dry-run")
        assert "replays 10 messages; nothing was changed" in dry.err
        assert "1 member now, so it needs --force" in dry.err
        refused = shell.run("group", "reset", group, *to_time, "--yes", code=1)
        assert f"child at 127.0.0.1 reads {topic} 0,1" in refused.err
        assert "add --force" in refused.err
        assert committed(shell, group) == [20, 20]
        cannot = shell.run("group", "delete", group, "--yes", code=1)
        assert "has 1 member (child)" in cannot.err

        child.forget()
        forced = shell.run("group", "reset", group, *to_time, "--force", "--yes")
        assert "1 member removed" in forced.err
        child.wait_for([(partition, offset) for partition in (0, 1) for offset in range(15, 20)])
        # Exactly the messages since that time, each once and in order.
        for partition in "01":
            read = [line for line in child.lines if line.startswith(partition)]
            assert read == [f"{partition} {offset}" for offset in range(15, 20)]
        wait_until(lambda: committed(shell, group) == [20, 20], "it commits again")


def test_force_is_not_needed_where_nobody_is(shell: Shell) -> None:
    shell.topic("empty", partitions=1, messages=10)
    commit(shell, "empty-group", "empty", 10)
    shell.run("group", "reset", "empty-group", "--to-earliest", "--force", "--yes")
    assert committed(shell, "empty-group") == [0]
    again = shell.run("group", "reset", "empty-group", "--to-earliest", "--yes")
    assert "is there already; nothing changed" in again.err


def test_every_reset_is_recorded_with_who_what_and_outcome(shell: Shell) -> None:
    shell.topic("audited", partitions=2, messages=10)
    commit(shell, "audited-group", "audited", 5, 5)
    shell.run("group", "reset", "audited-group", "--to-offset", "2", "--dry-run")
    shell.run("group", "reset", "audited-group", "--to-offset", "2", "--yes")
    acts = [
        act
        for act in shell.json("replay", "list")["replays"]
        if act["source"] == {"group": "audited-group"}
    ]
    [act] = acts
    assert (act["kind"], act["state"], act["target"]) == ("reset", "done", None)
    assert (act["messages"], act["message"]) == (6, None)
    assert "@" in act["who"]
    moved = {"topic": "audited", "partition": 1, "from": 5, "to": 2}
    assert act["partitions"][1] == moved
    # A block for each on a terminal, where all of it can be read.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("respool.cli.output.is_terminal", lambda: True)
        shown = shell.run("replay", "list").out
    block = shown[shown.index(f"{act['id']}  reset of group audited-group\n") :].splitlines()
    assert block[1].startswith(f"  begun     {format_ms(act['begun_ms'])} by ")
    assert block[2:7] == [
        "  from      5",
        "  until     2 (to offset 2)",
        "  to        audited 0,1",
        "  messages  6",
        "  state     done, the group was empty",
    ]
    # What others write there is passed over.
    junk = b"x:no json\ny:[]\n" + act["id"].encode() + b":{}\n"
    shell.run("produce", AUDIT_TOPIC, "--key-separator", ":", stdin=junk)
    assert act["id"] in shell.run("replay", "list").out
    [described] = json.loads(shell.run("topic", "describe", AUDIT_TOPIC, "--json").out)["topics"]
    settings = {each["name"]: each["value"] for each in described["settings"]}
    assert settings["cleanup.policy"] == "compact"
