"""`respool dlq` with a real broker: what people and programs see."""

import json
from collections.abc import Iterator
from itertools import count

import pytest

from cli.running import Run
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.model.retry.failure_headers import FailureRecord
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.message import Message

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"topic": {"respool.flush": "os"}}) as broker:
        yield broker


class DlqStory:
    def __init__(self, run: Run, broker: Broker) -> None:
        self._run = run
        self.broker = broker
        self.group = f"billing-{next(_numbers)}"
        for topic in (f"dlq.{self.group}", f"retry.{self.group}"):
            broker.create_topic(topic)
        failure = FailureRecord(
            topic="rides",
            partition=2,
            offset=4711,
            group=self.group,
            deliveries=5,
            error_text="no answer\x1b[2J" + "x" * 100,
            error_class="OSError",
            first_failed_at_ms=1_763_107_200_000,
        )
        messages = [
            Message(key=b"ride-1", value=b"{}", headers=(("tag", b"x"), *failure.to_headers())),
            Message(value=b"\xff"),
        ]
        ConfluentClient().write(broker.bootstrap, (f"dlq.{self.group}", 0), messages)
        with Cluster(broker.bootstrap) as cluster:
            commit_offsets(cluster, self.group, {(f"retry.{self.group}", 0): OffsetAndMetadata(0)})

    def run(self, *words: str, code: int = 0) -> str:
        ended = self._run("dlq", *words, "--broker", self.broker.bootstrap)
        assert ended.code == code, ended.err
        self.err = ended.err
        return ended.out


@pytest.fixture
def story(run: Run, broker: Broker) -> DlqStory:
    return DlqStory(run, broker)


def test_list_has_a_line_for_each_group_and_a_note_on_strays(story: DlqStory) -> None:
    stray = f"dlq.renamed-{story.group}"
    story.broker.create_topic(stray)
    lines = [line.split("\t") for line in story.run("list").splitlines()]
    assert [story.group, "2", f"dlq.{story.group}", f"retry.{story.group}"] in lines
    assert ["", "0", stray, ""] in lines or ["-", "0", stray, "-"] in lines
    assert "without a group" in story.err


def test_show_says_where_a_letter_comes_from_and_why_it_failed(story: DlqStory) -> None:
    first, second = (line.split("\t") for line in story.run("show", story.group).splitlines())
    assert first[3:6] == ["rides/2/4711", "5", "OSError"]
    assert first[6].startswith("no answer\\x1b[2J")
    assert len(first[6]) < 75
    assert second[3] == "(unreadable)"


def test_show_as_json_has_everything(story: DlqStory) -> None:
    first, second = json.loads(story.run("show", story.group, "--json"))["letters"]
    assert first["origin"] == {"topic": "rides", "partition": 2, "offset": 4711}
    assert (first["attempt_count"], first["error"]) == (5, "OSError")
    assert first["first_failed_ms"] == 1_763_107_200_000
    assert first["value"] == "{}"
    assert ["tag", "x"] in first["headers"]
    assert (second["origin"], second["attempt_count"]) == (None, None)
    assert second["value"] == {"base64": "/w=="}


def test_show_limits_and_selects(story: DlqStory) -> None:
    assert len(story.run("show", story.group, "--limit", "1").splitlines()) == 1
    where = "respool-error-class = 'OSError'"
    assert len(story.run("show", story.group, "--where", where).splitlines()) == 1
    assert story.run("show", story.group, "--where", "tag = 'none'") == ""
    assert "no dead letters match" in story.err


def test_replay_says_what_it_copies_and_what_it_leaves_out(story: DlqStory) -> None:
    assert story.run("replay", story.group) == ""
    assert "1 letter left out" in story.err
    assert f"1 message in retry.{story.group}" in story.err
    (again,) = json.loads(story.run("replay", story.group, "--json"))["replays"]
    assert "was done already" in story.err
    assert (again["state"], again["messages"]) == ("done", 1)


def test_replay_to_a_topic_that_is_gone_says_so(story: DlqStory) -> None:
    assert json.loads(story.run("replay", story.group, "--to", "origin", "--json")) == {
        "replays": []
    }
    assert "1 letter of rides left out: there is no such topic" in story.err


def test_purge_asks_unless_told_not_to(story: DlqStory) -> None:
    story.run("purge", story.group, code=2)
    assert "--yes" in story.err
    assert len(story.run("show", story.group).splitlines()) == 2
    document = json.loads(story.run("purge", story.group, "--yes", "--json"))
    assert document == {"group": story.group, "topic": f"dlq.{story.group}", "messages": 2}
    assert story.run("show", story.group) == ""
    assert "no dead letters" in story.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "nobody"), 3, "dlq.nobody"),
        (("replay", "nobody"), 3, "respool dlq list"),
        (("purge", "nobody", "--yes"), 3, "dlq.nobody"),
        (("show", "g", "--where", "tag ~ 'x'"), 2, "--where: "),
        (("replay", "g", "--rate", "lots"), 2, "not a rate"),
        (("show", "g", "--limit", "0"), 2, "--limit"),
    ],
)
def test_what_cannot_be_done_is_said(
    story: DlqStory, words: tuple[str, ...], code: int, said: str
) -> None:
    story.run(*words, code=code)
    assert said in story.err
