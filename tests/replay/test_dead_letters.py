"""The dead letters of groups, and their replays, with a real broker."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from unittest.mock import patch

import pytest

from respool.client.kafka.admin import delete_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from respool.model.retry.failure_headers import FailureRecord, read_failure
from respool.model.seek_target import Earliest
from respool.model.where import Where, parse_where
from respool.replay import copy_run
from respool.replay.audit import DONE, AuditLog
from respool.replay.dead_letters import (
    GroupLetters,
    list_letters,
    purge_letters,
    read_letters,
)
from respool.replay.errors import InvalidReplay, ReplayNotFound
from respool.replay.handle import Replay
from respool.replay.letter_replay import plan_letters
from respool.replay.letter_source import LetterSource
from respool.replay.pace import parse_pace
from respool.replay.request import MessageFilter
from respool.replay.start_replay import resume_recorded, start
from respool.replay.time_range import TimeRange
from respool.replay.topic_copy import CopyOptions
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.message import Message, Received

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"topic": {"respool.flush": "os"}}) as broker:
        yield broker


class Letters:
    """A group with dead letters."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.group = f"billing-{next(_numbers)}"
        self.topic = f"dlq.{self.group}"
        self.retry_topic = f"retry.{self.group}"
        self.origin = f"rides-{self.group}"
        for topic in (self.topic, self.retry_topic, self.origin):
            broker.create_topic(topic, partitions=2)

    def bury(
        self, *values: bytes, origin: str | None = None, error: str = "OSError", truncated: str = ""
    ) -> None:
        messages: dict[int, list[Message]] = defaultdict(list)
        for number, value in enumerate(values):
            failure = FailureRecord(
                topic=origin or self.origin,
                partition=number % 2,
                offset=number,
                group=self.group,
                deliveries=3,
                error_class=error,
                truncated=truncated,
            )
            headers = (("tag", b"paid"), *failure.to_headers())
            messages[number % 2].append(Message(key=b"k", value=value, headers=headers))
        for partition, found in messages.items():
            self._write(partition, found)

    def bury_stray(self) -> None:
        self._write(0, [Message(value=b"stray")])

    def _write(self, partition: int, messages: list[Message]) -> None:
        ConfluentClient().write(self.broker.bootstrap, (self.topic, partition), messages)

    def read(self, topic: str) -> list[Received]:
        places = [(topic, 0), (topic, 1)]
        found = ConfluentClient().read(self.broker.bootstrap, places)
        return [one for place in places for one in found[place]]

    def values(self, topic: str) -> list[bytes]:
        return sorted(one.value or b"" for one in self.read(topic))

    def replay(
        self,
        to: str | None = None,
        *,
        where: Where | None = None,
        again: bool = False,
        pace: str = "max",
    ) -> list[Replay]:
        with Cluster(self.broker.bootstrap) as cluster:
            plan = plan_letters(cluster, LetterSource.of_retries(self.group), to=to, where=where)
        wanted = TimeRange(since=Earliest(), to_ms=int(datetime.now(UTC).timestamp() * 1000))
        options = CopyOptions(pace=parse_pace(pace))
        return [
            start(
                Cluster(self.broker.bootstrap),
                request,
                wanted,
                options,
                again=again,
                on_note=lambda _: None,
            )
            for request in plan.requests
        ]

    def replay_all(self, to: str | None = None, **options: object) -> list[int]:
        """How many messages each replay has copied."""
        return [one.wait().messages for one in self.replay(to, **options)]  # type: ignore[arg-type]


@pytest.fixture
def letters(broker: Broker) -> Letters:
    return Letters(broker)


# -- list, show, purge


def test_groups_are_listed_with_their_letters_and_topics_of_no_group_last(broker: Broker) -> None:
    known, odd, stray = Letters(broker), "orders/eu", Letters(broker)
    known.bury(b"0", b"1")
    stray.bury(b"0")
    broker.create_topic("dlq.orders_eu-df09ed59")
    with Cluster(broker.bootstrap) as cluster:
        for group in (known.group, odd):
            commit_offsets(cluster, group, {(known.origin, 0): OffsetAndMetadata(0)})
        found = list_letters(cluster)
    assert (
        GroupLetters(
            group=known.group,
            dead_letter_topic=known.topic,
            retry_topic=known.retry_topic,
            letters=2,
        )
        in found
    )
    assert (
        GroupLetters(
            group=odd, dead_letter_topic="dlq.orders_eu-df09ed59", retry_topic=None, letters=0
        )
        in found
    )
    strays = [one for one in found if one.group is None]
    assert stray.topic in [one.dead_letter_topic for one in strays]
    assert found[-len(strays) :] == strays


def test_the_newest_letters_are_shown_with_their_failure(letters: Letters) -> None:
    letters.bury(*(b"%d" % number for number in range(10)))
    letters.bury_stray()
    with Cluster(letters.broker.bootstrap) as cluster:
        found = read_letters(
            cluster, LetterSource.of_retries(letters.group), where=None, letters_max=2
        )
        assert [one.record.value for one in found] == [b"8", b"stray", b"7", b"9"]
        assert found[1].failure is None
        assert found[0].failure is not None
        assert found[0].failure.deliveries == 3
        where = parse_where("\"__dlq.errors.offset\" = '1'")
        (one,) = read_letters(
            cluster, LetterSource.of_retries(letters.group), where=where, letters_max=2
        )
        assert one.record.value == b"1"


def test_purged_letters_are_gone_and_later_ones_stay(letters: Letters) -> None:
    letters.bury(b"0", b"1")
    with Cluster(letters.broker.bootstrap) as cluster:
        purge_letters(cluster, letters.group, {0: 1, 1: 1})
        letters.bury(b"2")
        found = read_letters(
            cluster, LetterSource.of_retries(letters.group), where=None, letters_max=10
        )
    assert [one.record.value for one in found] == [b"2"]


def test_a_group_without_dead_letters_is_named(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for act in (
            lambda: read_letters(
                cluster, LetterSource.of_retries("nobody"), where=None, letters_max=1
            ),
            lambda: plan_letters(cluster, LetterSource.of_retries("nobody"), to=None, where=None),
        ):
            with pytest.raises(ReplayNotFound, match=r"dlq\.nobody"):
                act()


# -- replay


def test_letters_are_replayed_to_the_group_that_failed(letters: Letters) -> None:
    letters.bury(b"0", b"1", b"2")
    assert letters.replay_all() == [3]
    copies = letters.read(letters.retry_topic)
    assert sorted(one.value or b"" for one in copies) == [b"0", b"1", b"2"]
    assert {read_failure(one.headers).deliveries for one in copies} == {0}
    assert all("respool-replay-id" in dict(one.headers) for one in copies)
    assert letters.values(letters.origin) == []


def test_started_again_it_copies_only_what_has_come_since(letters: Letters) -> None:
    letters.bury(b"0")
    assert letters.replay_all() == [1]
    assert letters.replay_all() == [1]
    assert letters.values(letters.retry_topic) == [b"0"]
    letters.bury(b"1", b"2")
    assert letters.replay_all() == [2]
    assert letters.values(letters.retry_topic) == [b"0", b"1", b"2"]
    assert letters.replay_all(again=True) == [3]
    assert letters.values(letters.retry_topic) == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_letters_go_back_to_the_topics_they_come_from(letters: Letters) -> None:
    other = letters.broker.new_topic("invoices")
    letters.bury(b"0", b"1")
    letters.bury(b"2", origin=other)
    letters.bury(b"3", origin="deleted")
    letters.bury_stray()
    with Cluster(letters.broker.bootstrap) as cluster:
        plan = plan_letters(
            cluster, LetterSource.of_retries(letters.group), to="origin", where=None
        )
    assert (plan.missing, plan.left_out) == ({"deleted": 1}, 1)
    assert sorted(letters.replay_all("origin")) == [1, 2]
    assert letters.values(letters.origin) == [b"0", b"1"]
    (copy,) = ConfluentClient().read(letters.broker.bootstrap, [(other, 0)])[other, 0]
    assert [name for name, _ in copy.headers] == [
        "tag",
        "respool-replay-id",
        "respool-source",
        "respool-replay-number",
    ]


def test_a_condition_chooses_letters(letters: Letters) -> None:
    letters.bury(b"0", b"1")
    letters.bury(b"2", error="KeyError")
    assert letters.replay_all(where=parse_where("respool-error-class = 'KeyError'")) == [1]
    assert letters.values(letters.retry_topic) == [b"2"]


def test_letters_without_their_value_are_not_replayed_as_deletions(letters: Letters) -> None:
    letters.bury(b"0")
    letters.bury(b"", truncated="value")
    with Cluster(letters.broker.bootstrap) as cluster:
        assert (
            plan_letters(
                cluster, LetterSource.of_retries(letters.group), to=None, where=None
            ).left_out
            == 1
        )
    assert letters.replay_all() == [1]


def test_a_renamed_group_takes_the_letters_of_the_old_one(letters: Letters) -> None:
    renamed = Letters(letters.broker)
    letters.bury(b"0")
    assert letters.replay_all(renamed.retry_topic) == [1]
    (copy,) = renamed.read(renamed.retry_topic)
    assert read_failure(copy.headers).deliveries == 0


def test_any_other_topic_gets_them_as_they_are_and_is_created(letters: Letters) -> None:
    letters.bury(b"0")
    archive = f"archive-{letters.group}"
    assert letters.replay_all(archive) == [1]
    (copy,) = letters.read(archive)
    assert read_failure(copy.headers).deliveries == 3


@pytest.mark.parametrize(
    ("to", "error", "reason"),
    [("dlq", InvalidReplay, "to themselves"), (None, ReplayNotFound, "retry=")],
)
def test_targets_that_make_no_sense_are_refused(
    letters: Letters, to: str | None, error: type[Exception], reason: str
) -> None:
    if to is None:
        with Cluster(letters.broker.bootstrap) as cluster:
            delete_topic(cluster, letters.retry_topic)
    with Cluster(letters.broker.bootstrap) as cluster, pytest.raises(error, match=reason):
        plan_letters(
            cluster,
            LetterSource.of_retries(letters.group),
            to=letters.topic if to else None,
            where=None,
        )


def test_an_interrupted_replay_continues_without_gaps_or_duplicates(letters: Letters) -> None:
    values = [b"%02d" % number for number in range(60)]
    letters.bury(*values)
    with patch.object(copy_run, "PROGRESS_SECONDS", 0):
        (replay,) = letters.replay(pace="20/s")
        while replay.progress.copied == 0:
            assert replay.is_running
            replay.join(0.01)
        replay.stop()
        assert replay.wait().state != DONE
    assert 0 < len(letters.values(letters.retry_topic)) < 60
    # By the general command, which knows nothing of dead letters.
    resumed = resume_recorded(
        Cluster(letters.broker.bootstrap),
        replay.id,
        MessageFilter(),
        CopyOptions(pace=parse_pace("max")),
        on_note=lambda _: None,
    )
    assert resumed.wait().state == DONE
    copies = letters.read(letters.retry_topic)
    assert sorted(one.value or b"" for one in copies) == values
    assert {read_failure(one.headers).deliveries for one in copies} == {0}
    with Cluster(letters.broker.bootstrap) as cluster:
        assert replay.id in AuditLog(cluster).entries()
