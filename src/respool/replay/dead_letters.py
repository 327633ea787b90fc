"""The dead letters of groups: which groups have some, what they say, and deleting them."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from respool.client.kafka.admin import delete_records
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import CONSUMERS, list_groups
from respool.client.kafka.metadata import TopicMetadata
from respool.client.kafka.share_group_admin import SHARE
from respool.model.retry.failure_headers import FailureRecord
from respool.model.retry.group_topics import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    dead_letter_topic,
)
from respool.model.where import Where
from respool.records.record import Record
from respool.replay.copy_plan import Span
from respool.replay.errors import ReplayUnreachable, client_errors_translated
from respool.replay.letter_rules import LetterRules, failure_of
from respool.replay.letter_source import LetterSource, no_letters
from respool.replay.record_reader import RecordRangeReader
from respool.replay.topic_lookup import check_leaders, held_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLetters:
    """A group's topics for retries and dead letters; or topics of these names that belong to no group."""

    # None: no group has this name. It was renamed or deleted, or has committed nothing yet.
    group: str | None
    # None: there is no such topic.
    dead_letter_topic: str | None
    retry_topic: str | None
    # An upper bound: markers of transactions are counted, too.
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    partition: int
    record: Record
    # None: it does not say where it comes from.
    failure: FailureRecord | None


def list_letters(cluster: Cluster) -> list[GroupLetters]:
    """All groups that have such topics, by name, and then the topics of no group.

    Raises:
        ReplayError: the cluster could not be asked, or does not know all its groups now.
    """
    with client_errors_translated():
        topics = cluster.retrying(cluster.refresh_all)
        named = _topics_by_part(topics)
        groups = _groups_by_part(cluster)
        found = [
            GroupLetters(
                group=groups.get(part),
                dead_letter_topic=own.get(DEAD_LETTER_PREFIX),
                retry_topic=own.get(RETRY_PREFIX),
                letters=_count(cluster, topics, own.get(DEAD_LETTER_PREFIX)),
            )
            for part, own in named.items()
        ]
    return sorted(
        found, key=lambda one: (one.group is None, one.group, one.dead_letter_topic or "")
    )


def read_letters(
    cluster: Cluster, source: LetterSource, *, where: Where | None, letters_max: int
) -> list[DeadLetter]:
    """The newest letters of each partition that match, in the order of partitions and offsets.

    Raises:
        ReplayNotFound: the group has no dead letters.
        ReplayError: they cannot be read.
    """
    rules = LetterRules(to="topic", where=where, group=source.only_group)
    with client_errors_translated():
        held = letters_held(cluster, source)
        # If all are selected, older ones need not be read.
        selects_all = where is None and source.only_group is None
        spans = _ends_of(held, letters_max) if selects_all else held
        newest: dict[int, deque[DeadLetter]] = defaultdict(lambda: deque(maxlen=letters_max))
        reader = RecordRangeReader(cluster, source.topic, spans)
        try:
            for fetched in reader.batches():
                for partition, records in fetched:
                    newest[partition] += [
                        DeadLetter(partition=partition, record=one, failure=failure_of(one))
                        for one in records
                        if rules.selects(one)
                    ]
        finally:
            reader.close()
    return [one for partition in sorted(newest) for one in newest[partition]]


def purge_letters(cluster: Cluster, group: str, before: Mapping[int, int]) -> None:
    """Delete the letters below these offsets, by partition.

    Raises:
        ReplayError: some could not be deleted.
    """
    topic = dead_letter_topic(group)
    with client_errors_translated():
        delete_records(cluster, {(topic, number): offset for number, offset in before.items()})


def letters_held(cluster: Cluster, source: LetterSource) -> dict[int, Span]:
    """The current offsets of a group's dead-letter topic.

    Raises:
        ReplayNotFound: the group has none.
    """
    topic = cluster.retrying(cluster.refresh_all).get(source.topic)
    if topic is None:
        raise no_letters(source)
    check_leaders(cluster, topic)
    return held_spans(cluster, source.topic, topic.leaders)


def _topics_by_part(topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """By the part of their names that stands for the group: prefix -> topic."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name in topics:
        for prefix in (DEAD_LETTER_PREFIX, RETRY_PREFIX):
            if name.startswith(prefix):
                found[name.removeprefix(prefix)][prefix] = name
    return found


def _groups_by_part(cluster: Cluster) -> dict[str, str]:
    """Share groups usually have topics of these names, too."""
    listed = list_groups(cluster, protocol_types=CONSUMERS | {SHARE})
    if listed.unheard or listed.unled:
        raise ReplayUnreachable(
            "not all groups are known now, so that topics of groups would look like those of none",
            hint="run the same command again when all brokers answer",
        )
    return {
        dead_letter_topic(one.name).removeprefix(DEAD_LETTER_PREFIX): one.name
        for one in listed.groups
    }


def _count(cluster: Cluster, topics: Mapping[str, TopicMetadata], name: str | None) -> int:
    if name is None:
        return 0
    check_leaders(cluster, topics[name])
    held = held_spans(cluster, name, topics[name].leaders)
    return sum(span.messages for span in held.values())


def _ends_of(held: Mapping[int, Span], letters_max: int) -> dict[int, Span]:
    return {
        number: Span(max(span.start, span.stop - letters_max), span.stop)
        for number, span in held.items()
    }
