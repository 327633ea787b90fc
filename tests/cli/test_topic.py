import io
import json
import sys

import pytest

from cli.fake_cluster import FakeCluster
from cli.running import Run
from respool.cli.main import main
from respool.cli.topic import with_unit
from respool.operate.cluster_admin import TopicSetting
from respool.operate.topic_description import retention


class Terminal(io.StringIO):
    """Standard input with a person at it."""

    def isatty(self) -> bool:
        return True


def test_create_asks_for_what_was_given_and_units_are_numbers(
    run: Run, fake_cluster: FakeCluster
) -> None:
    ended = run("topic", "create", "rides", "--partitions", "4", "--set", "retention.ms=1d")
    assert (ended.code, ended.out) == (0, "")
    assert "created rides" in ended.err
    assert len(fake_cluster.held["rides"].ranges) == 4
    assert fake_cluster.held["rides"].settings == {"retention.ms": "86400000"}


def test_create_of_a_topic_that_exists_fails_unless_that_was_allowed(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (0, 5))
    refused = run("topic", "create", "rides", "--partitions", "3")
    assert refused.code == 1
    assert "there is a topic 'rides' already" in refused.err
    assert "--if-not-exists" in refused.err
    allowed = run("topic", "create", "rides", "--partitions", "3", "--if-not-exists", "--json")
    assert allowed.code == 0
    assert json.loads(allowed.out) == {"topic": "rides", "created": False}
    assert len(fake_cluster.held["rides"].ranges) == 1


def test_list_shows_name_partitions_messages_and_retention(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (5, 10), (0, 20), None)
    fake_cluster.add("audit", (0, 0), retention_ms="-1")
    fake_cluster.add("small", (0, 1), retention_ms="-1", retention_bytes="1048576")
    fake_cluster.add("__consumer_offsets", (0, 9))
    ended = run("topic", "list")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "audit\t1\t0\tfor ever",
        "rides\t3\t25\t7d",
        "small\t1\t1\t1.0 MiB per partition",
    ]
    assert "sizes exclude 1 partition without a leader" in ended.err
    with_internal = run("topic", "list", "--internal", "--json")
    topics = {each["topic"]: each for each in json.loads(with_internal.out)["topics"]}
    assert topics["__consumer_offsets"]["messages"] == 9
    assert topics["rides"]["partition_count"] == 3


def test_a_topic_that_nobody_leads_is_listed_without_its_messages(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("cars", None, cleanup_policy="compact")
    fake_cluster.add("rides", None, None)
    fake_cluster.add("zones", (0, 2))
    ended = run("topic", "list")
    assert ended.code == 0
    assert [line.split("\t")[:3] for line in ended.out.splitlines()] == [
        ["cars", "1", "-"],
        ["rides", "2", "-"],
        ["zones", "1", "2"],
    ]
    assert "sizes exclude 3 partitions without a leader" in ended.err
    documents = json.loads(run("topic", "list", "--json").out)["topics"]
    assert [one["messages_max"] for one in documents] == [None, None, 2]


def test_offsets_of_a_compacted_topic_are_not_called_messages(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("cars", (0, 1500), (5, 10), cleanup_policy="compact,delete")
    fake_cluster.add("rides", (0, 7))
    lines = run("topic", "list").out.splitlines()
    assert [line.split("\t")[2] for line in lines] == ["up to 1,505", "7"]
    cars, rides = json.loads(run("topic", "list", "--json").out)["topics"]
    assert (cars["messages"], cars["messages_max"]) == (None, 1505)
    assert (rides["messages"], rides["messages_max"]) == (7, 7)
    [described] = json.loads(run("topic", "describe", "cars", "--json").out)["topics"]
    assert [each["messages"] for each in described["partitions"]] == [None, None]
    assert [each["end_offset"] for each in described["partitions"]] == [1500, 10]


@pytest.mark.parametrize(
    ("policy", "kept_ms", "words"),
    [
        ("delete", "86400000", "1d"),
        ("delete", "-1", "for ever"),
        ("compact", "86400000", "until its key has a newer one"),
        ("compact,delete", "86400000", "1d or until its key has a newer one"),
    ],
)
def test_retention_is_told_by_the_policy_that_is_in_force(
    policy: str, kept_ms: str, words: str
) -> None:
    settings = [
        TopicSetting(name="cleanup.policy", value=policy, source="topic"),
        TopicSetting(name="retention.ms", value=kept_ms, source="default"),
    ]
    assert retention(settings) == words


def test_list_without_topics_says_how_to_make_one(run: Run, fake_cluster: FakeCluster) -> None:
    ended = run("topic", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "respool topic create" in ended.err


def test_describe_shows_settings_with_their_source_partitions_and_the_promise(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (5, 10), None, respool_flush="os")
    [described] = json.loads(run("topic", "describe", "rides", "--json").out)["topics"]
    assert described["acks_all"] == {
        "flush": "os",
        "flush_interval_ms": None,
        "replicas_min": 1,
    }
    piped = run("topic", "describe", "rides").out
    assert "rides\tpromise\tacks=all answers from the page cache" in piped
    assert {"name": "respool.flush", "value": "os", "source": "topic"} in described["settings"]
    assert {"name": "retention.bytes", "value": "-1", "source": "default"} in described["settings"]
    assert described["partitions"] == [
        {
            "partition": 0,
            "leader": 1,
            "start_offset": 5,
            "end_offset": 10,
            "messages": 5,
            "replicas": [1, 2],
            "in_sync": [1, 2],
        },
        {
            "partition": 1,
            "leader": None,
            "start_offset": None,
            "end_offset": None,
            "messages": None,
            "replicas": [1, 2],
            "in_sync": [],
        },
    ]
    lines = run("topic", "describe", "rides").out.splitlines()
    assert "rides\tsetting\trespool.flush\tos\ttopic" in lines
    assert "rides\tpartition\t0\t1\t5\t10\t5\t1,2\t1,2" in lines
    assert "rides\tpartition\t1\t\t\t\t\t1,2\t" in lines


def test_the_promise_says_how_many_replicas_have_it_where_one_is_not_enough(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("one", (0, 1))
    fake_cluster.held["one"].settings["min.insync.replicas"] = "1"
    fake_cluster.add("two", (0, 1))
    fake_cluster.held["two"].settings["min.insync.replicas"] = "2"
    one, two = json.loads(run("topic", "describe", "one", "two", "--json").out)["topics"]
    assert one["acks_all"]["replicas_min"] == 1
    assert two["acks_all"] == {"flush": "always", "flush_interval_ms": None, "replicas_min": 2}


def test_the_promise_counts_no_more_replicas_than_there_are(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (0, 1))
    fake_cluster.held["rides"].settings["min.insync.replicas"] = "9"
    [described] = json.loads(run("topic", "describe", "rides", "--json").out)["topics"]
    assert described["acks_all"]["replicas_min"] == 2


def test_who_asks_for_more_replicas_in_sync_than_there_are_is_told_what_it_means(
    run: Run, fake_cluster: FakeCluster
) -> None:
    created = run("topic", "create", "rides", "--set", "min.insync.replicas=9")
    assert created.code == 0
    told = "rides has only 2 replicas, so min.insync.replicas=9 means all 2"
    assert told in created.err
    assert told in run("topic", "alter", "rides", "--set", "min.insync.replicas=9", "--json").err
    assert "only" not in run("topic", "alter", "rides", "--set", "min.insync.replicas=2").err


def test_describe_of_a_missing_topic_is_not_found(run: Run, fake_cluster: FakeCluster) -> None:
    assert run("topic", "describe", "rides").code == 3


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "604800000 (7d)"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "1048576", "1048576 (1.0 MiB)"),
        ("message.timestamp.before.max.ms", "9223372036854775807", "9223372036854775807"),
        ("min.insync.replicas", "100000", "100000"),
    ],
)
def test_times_and_sizes_are_shown_with_units_to_people(name: str, value: str, shown: str) -> None:
    assert with_unit(name, value) == shown


def test_alter_sets_and_unsets_and_grows(run: Run, fake_cluster: FakeCluster) -> None:
    fake_cluster.add("rides", (0, 5), retention_bytes="100", retention_ms="5")
    ended = run(
        "topic", "alter", "rides", "--set", "retention.ms=2h", "--unset", "retention.bytes",
        "--partitions", "3",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert fake_cluster.held["rides"].settings == {"retention.ms": "7200000"}
    assert len(fake_cluster.held["rides"].ranges) == 3


def test_alter_to_the_partitions_it_has_changes_nothing(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (0, 5))
    assert run("topic", "alter", "rides", "--partitions", "1").code == 0


def test_a_topic_cannot_shrink_and_is_told_why(run: Run, fake_cluster: FakeCluster) -> None:
    fake_cluster.add("rides", (0, 5), (0, 5))
    ended = run("topic", "alter", "rides", "--partitions", "1", "--set", "retention.ms=1")
    assert ended.code == 2
    assert "cannot shrink to 1" in ended.err
    assert "respool topic shrink rides --to 1" in ended.err
    assert fake_cluster.held["rides"].settings == {}


def test_a_wrong_setting_is_refused_before_partitions_are_added(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (0, 5))
    ended = run("topic", "alter", "rides", "--partitions", "2", "--set", "retntion.ms=1")
    assert ended.code == 1
    assert "Unknown topic config name: retntion.ms" in ended.err
    assert len(fake_cluster.held["rides"].ranges) == 1


@pytest.mark.parametrize(
    "options", [[], ["--set", "a"], ["--set", "a=1", "--unset", "a"], ["--partitions", "0"]]
)
def test_alter_refuses_what_makes_no_sense(
    run: Run, fake_cluster: FakeCluster, options: list[str]
) -> None:
    fake_cluster.add("rides", (0, 5))
    assert run("topic", "alter", "rides", *options).code == 2


def test_what_is_no_setting_cannot_be_unset(run: Run, fake_cluster: FakeCluster) -> None:
    fake_cluster.add("rides", (0, 1), retention_ms="5")
    ended = run("topic", "alter", "rides", "--unset", "retention.m")
    assert ended.code == 2
    assert "did you mean retention.ms?" in ended.err
    assert fake_cluster.held["rides"].settings == {"retention.ms": "5"}


def test_delete_without_a_terminal_needs_yes(run: Run, fake_cluster: FakeCluster) -> None:
    fake_cluster.add("rides", (0, 5))
    refused = run("topic", "delete", "rides")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "rides" in fake_cluster.held
    assert run("topic", "delete", "rides", "--yes").code == 0
    assert "rides" not in fake_cluster.held


def test_delete_of_several_deletes_none_when_one_is_missing(
    run: Run, fake_cluster: FakeCluster
) -> None:
    fake_cluster.add("rides", (0, 5))
    assert run("topic", "delete", "rides", "missing", "--yes").code == 3
    assert "rides" in fake_cluster.held


def test_delete_goes_on_after_one_that_is_refused_and_fails(
    run: Run, fake_cluster: FakeCluster
) -> None:
    for name in ("a", "b", "c"):
        fake_cluster.add(name, (0, 1))
    fake_cluster.refuses_to_delete = {"b"}
    ended = run("topic", "delete", "a", "b", "c", "--yes")
    assert ended.code == 1
    assert "b was not deleted" in ended.err
    assert set(fake_cluster.held) == {"b"}


@pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, set()), ("n\n", 1, {"rides"})])
def test_on_a_terminal_delete_asks_and_shows_what_would_be_lost(
    *,
    fake_cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    code: int,
    left: set[str],
) -> None:
    fake_cluster.add("rides", (0, 1234))
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert main(["topic", "delete", "rides"]) == code
    assert "rides: 1 partition, 1,234 messages" in capsys.readouterr().err
    assert set(fake_cluster.held) == left
