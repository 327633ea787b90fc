"""`respool view`, and what other commands do with views."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from cli.commands import Commands
from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.cli.messages.newest_messages import Scan
from respool.cli.views.view_trial import in_words, run_trial
from respool.client.kafka.bootstrap import Bootstrap
from respool.model.where import parse_where
from respool.operate.cluster_admin import ClusterAdmin
from respool.testing import Broker

PAID = "tag = 'paid'"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With 20 messages of 2 partitions, of which every fourth is paid."""
    with Broker(topics={"rides": 2, "fares": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(20):
            headers = {"tag": "paid" if number % 4 == 0 else "open"}
            producer.produce(
                "rides", f"{number:04}", key=f"k{number}", headers=headers, partition=number % 2
            )
        assert producer.flush(30) == 0
        yield broker


@pytest.fixture
def commands(run: Run, broker: Broker) -> Iterator[Commands]:
    """Without views, before and after."""
    made = Commands(run, broker)
    yield made
    for one in made.json("view", "list")["views"]:
        made("view", "delete", one["view"], "--yes")


def test_a_view_is_created_listed_described_and_deleted(commands: Commands) -> None:
    made = commands.json("view", "create", "paid", "--of", "rides", "--where", "tag='paid'")
    paid = {"view": "paid", "of": "rides", "where": PAID, "listed": False}
    assert made == {**paid, "created": True}
    commands("view", "create", "open", "--of", "rides", "--where", "tag='open'", "--listed")

    assert commands("view", "list").out.splitlines() == [
        "open\trides\tyes\ttag = 'open'",
        "paid\trides\tno\ttag = 'paid'",
    ]
    assert commands.json("view", "list", "--of", "fares") == {"views": []}
    (described,) = commands.json("view", "describe", "paid")["views"]
    partitions = [
        {"partition": number, "leader": 1, "start_offset": 0, "end_offset": 10} for number in (0, 1)
    ]
    assert described == {**paid, "partitions": partitions}
    assert commands("view", "describe", "paid").out.splitlines() == [
        "paid\tof\trides",
        "paid\twhere\ttag = 'paid'",
        "paid\tlisted\tno",
        "paid\tpartition\t0\t1\t0\t10",
        "paid\tpartition\t1\t1\t0\t10",
    ]
    assert commands.json("view", "delete", "paid", "--yes") == {
        "views": [{"view": "paid", "deleted": True}]
    }
    assert [one["view"] for one in commands.json("view", "list")["views"]] == ["open"]


def test_a_view_that_exists_is_an_error_unless_that_is_allowed(commands: Commands) -> None:
    create = ("view", "create", "paid", "--of", "rides", "--where", PAID)
    commands(*create)
    assert "there is a view or topic 'paid' already" in commands(*create, code=1).err
    assert "nothing changed" in commands(*create, "--if-not-exists").err
    # A topic of this name is no view.
    taken = ("view", "create", "fares", "--of", "rides", "--where", PAID, "--if-not-exists")
    assert "there is a view or topic 'fares' already" in commands(*taken, code=1).err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ("create", "x", "--of", "ridez", "--where", PAID),
            ExitCode.NOT_FOUND,
            "did you mean rides?",
        ),
        (
            ("create", "x", "--of", "rides", "--where", "tag = paid"),
            ExitCode.USAGE,
            "--where: position 7: found `paid`, expected",
        ),
        (("create", "x", "--of", "paid", "--where", PAID), ExitCode.USAGE, "view of 'rides'"),
        (("try", "rides", "--where", "tag"), ExitCode.USAGE, "--where: position 4"),
        (("try", "ridez", "--where", PAID), ExitCode.NOT_FOUND, "did you mean rides?"),
        (("describe", "rides"), ExitCode.USAGE, "rides is a topic, not a view"),
        (("describe", "paix"), ExitCode.NOT_FOUND, "did you mean paid?"),
        (("delete", "rides", "--yes"), ExitCode.USAGE, "rides is a topic, not a view"),
        (("delete", "paid"), ExitCode.USAGE, "deleting a view deletes the offsets"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(
    commands: Commands, arguments: tuple[str, ...], code: ExitCode, words: str
) -> None:
    commands("view", "create", "paid", "--of", "rides", "--where", PAID)
    assert words in commands("view", *arguments, code=code).err
    assert [one["view"] for one in commands.json("view", "list")["views"]] == ["paid"]


def test_try_counts_what_a_view_would_show_and_creates_nothing(commands: Commands) -> None:
    found = commands.json("view", "try", "rides", "--where", PAID)
    assert (found["messages_matching"], found["messages_scanned"]) == (5, 20)
    # Key, value, and the header's name and value.
    assert found["bytes_matching"] == sum(len(f"k{n}") + 4 + 7 for n in range(0, 20, 4))
    assert not found["is_sample"]
    assert commands("view", "try", "rides", "--where", PAID).out == "rides\t5\t20\t20\n"
    newest = commands.json("view", "try", "rides", "--where", "key = 'k19'", "--scan", "2")
    assert (newest["messages_matching"], newest["messages_scanned"]) == (1, 2)
    assert newest["is_sample"]
    assert commands.json("view", "try", "fares", "--where", PAID)["messages_scanned"] == 0
    assert commands.json("view", "list") == {"views": []}


def test_a_trial_in_words(broker: Broker) -> None:
    where = parse_where(PAID)
    with ClusterAdmin.connect(Bootstrap.resolve(broker.bootstrap)) as admin:
        whole = run_trial(admin, admin.topic("rides"), where, Scan(None, None, 30.0))
        some = run_trial(admin, admin.topic("rides"), where, Scan(4, None, 30.0))
        none = run_trial(admin, admin.topic("fares"), where, Scan(None, None, 30.0))
    assert in_words(whole).startswith("5 messages match of all 20 messages (25 %), ")
    assert in_words(some).startswith("1 message matches of the newest 4 of 20 messages (25 %), ")
    assert in_words(none) == f"0 messages match of all 0 messages, 0 B of 0 B: {PAID}"


def test_a_view_is_consumed_like_a_topic_and_its_group_is_at_the_end(commands: Commands) -> None:
    commands("view", "create", "paid", "--of", "rides", "--where", PAID)
    assert sorted(commands("consume", "paid").out.split()) == [
        f"{number:04}" for number in range(0, 20, 4)
    ]
    assert len(commands("consume", "paid", "--group", "g").out.split()) == 5
    (group,) = commands.json("group", "lag", "g")["groups"]
    assert group["lag"] == 0
    assert [(one["topic"], one["committed"]) for one in group["partitions"]] == [("paid", 10)] * 2
    assert [one["lag"] for one in commands.json("status")["groups"] if one["group"] == "g"] == [0]
    moved = commands.json("group", "reset", "g", "--to-offset", "4", "--yes")
    assert [one["topic"] for one in moved["partitions"]] == ["paid", "paid"]
    commands("group", "delete", "g", "--yes")


def test_topics_are_shown_with_their_listed_views(commands: Commands) -> None:
    commands("view", "create", "paid", "--of", "rides", "--where", PAID)
    commands("view", "create", "open", "--of", "rides", "--where", "tag = 'open'", "--listed")
    # Another test may have made the audit log.
    shown = [line for line in commands("topic", "list").out.splitlines() if line[0] != "_"]
    assert shown == [
        "fares\t1\t0\t7d",
        "open\t2\tup to 20\tview of rides",
        "rides\t2\t20\t7d",
    ]
    views_of = {
        one["topic"]: (one["view_of"], one["messages"])
        for one in commands.json("topic", "list")["topics"]
        if one["topic"][0] != "_"
    }
    assert views_of == {"fares": (None, 0), "open": ("rides", None), "rides": (None, 20)}
    (described,) = commands.json("topic", "describe", "paid")["topics"]
    assert (described["view_of"], described["acks_all"]) == ("rides", None)
    assert [one["messages"] for one in described["partitions"]] == [None, None]
    lines = commands("topic", "describe", "paid").out.splitlines()
    assert lines[0] == "paid\tpromise\tnobody writes to a view; its messages are those of rides"


def test_a_view_is_changed_by_its_settings(commands: Commands) -> None:
    commands("view", "create", "paid", "--of", "rides", "--where", PAID)
    commands("topic", "alter", "paid", "--set", "respool.view.where=tag = 'open'")
    (view,) = commands.json("view", "list")["views"]
    assert view["where"] == "tag = 'open'"
    refused = commands("topic", "alter", "paid", "--partitions", "9", code=1)
    assert "'paid' is a view of 'rides': add partitions to 'rides' instead" in refused.err


def test_nobody_produces_to_a_view(commands: Commands) -> None:
    commands("view", "create", "paid", "--of", "rides", "--where", PAID)
    refused = commands("produce", "paid", "-m", "x", code=ExitCode.USAGE)
    assert "paid is a view of rides, and nobody writes to a view" in refused.err
    assert "tag = 'paid'" in refused.err


def test_a_view_is_replayed_into_a_topic(commands: Commands) -> None:
    commands("view", "create", "paid", "--of", "rides", "--where", PAID)
    commands("replay", "run", "paid", "--from", "1h", "--into", "copy")
    assert len(commands("consume", "copy").out.split()) == 5
    (copy,) = commands.json("topic", "describe", "copy")["topics"]
    assert copy["view_of"] is None
    commands("topic", "delete", "copy", "--yes")
