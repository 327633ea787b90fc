"""Replays of a group's dead letters: what is to be copied where, checked before anything is written."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.model.retry.group_topics import RETRY_PREFIX, retry_topic
from respool.model.where import Where
from respool.replay.audit import AuditEntry
from respool.replay.copy_plan import Span
from respool.replay.errors import InvalidReplay, ReplayNotFound, client_errors_translated
from respool.replay.letter_rules import LetterRules, LetterTarget, failure_of
from respool.replay.letter_source import LetterSource, no_letters
from respool.replay.record_reader import RecordRangeReader
from respool.replay.repeated_request import not_copied_yet
from respool.replay.request import ReplayRequest
from respool.replay.topic_lookup import check_leaders, describe_topic, held_spans

# Texts of a request: letters are copied from the first that was not copied yet, to the last there is now.
_FROM, _TO = "earliest", "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPlan:
    """The replays of one command: one, or one for each topic that letters come from."""

    requests: tuple[ReplayRequest, ...]
    # Topics that letters come from and that do not exist, with their numbers of letters.
    missing: Mapping[str, int]
    # Letters that are not whole, or do not say where they come from.
    left_out: int


def plan_letters(
    cluster: Cluster, source: LetterSource, *, to: str | None, where: Where | None
) -> LetterPlan:
    """`to`: None for the group's retry topic, "origin", or the name of a topic.

    Raises:
        ReplayNotFound: the group has no dead letters, or no retry topic.
        InvalidReplay: the letters would be copied to the dead letters.
    """
    with client_errors_translated():
        return _Planning(cluster, source, where).plan(to)


def letters_left(
    cluster: Cluster, request: ReplayRequest, in_log_order: Iterable[AuditEntry]
) -> dict[int, Span]:
    """The offsets of the letters that no finished replay among these entries has looked at."""
    with client_errors_translated():
        topic = describe_topic(cluster, request.topic)
        check_leaders(cluster, topic)
        return not_copied_yet(in_log_order, request, held_spans(cluster, topic.name, topic.leaders))


class _Planning:
    def __init__(self, cluster: Cluster, source: LetterSource, where: Where | None) -> None:
        self._cluster = cluster
        self._source = source
        self._where = where
        self._letters = source.topic
        self._topics = cluster.retrying(cluster.refresh_all)

    def plan(self, to: str | None) -> LetterPlan:
        if self._letters not in self._topics:
            raise no_letters(self._source)
        if to == "origin":
            return self._to_origins()
        target = retry_topic(self._source.group) if to is None else to
        if target == self._letters:
            raise InvalidReplay("dead letters are not copied to themselves")
        if to is None and target not in self._topics:
            raise ReplayNotFound(
                f"there is no topic {target}, from which the group's consumers would take them",
                hint="a consumer of the group with retry= creates it; or name a topic: --to TOPIC",
            )
        # This may be another group: the one that this group was renamed to.
        is_retry = target.startswith(RETRY_PREFIX)
        rules = self._rules("retry" if is_retry else "topic")
        left_out = 0 if rules.to == "topic" else self._count_origins()[None]
        return LetterPlan(requests=(self._request(target, rules),), missing={}, left_out=left_out)

    def _to_origins(self) -> LetterPlan:
        counts = self._count_origins()
        left_out = counts.pop(None, 0)
        missing = {
            topic: count
            for topic, count in sorted(counts.items(), key=lambda item: str(item[0]))
            if topic is not None and topic not in self._topics
        }
        requests = [
            self._request(topic, self._rules("origin", origin=topic))
            for topic in sorted(str(one) for one in counts)
            if topic in self._topics
        ]
        return LetterPlan(requests=tuple(requests), missing=missing, left_out=left_out)

    def _rules(self, to: LetterTarget, *, origin: str | None = None) -> LetterRules:
        return LetterRules(to=to, where=self._where, origin=origin, group=self._source.only_group)

    def _request(self, target: str, rules: LetterRules) -> ReplayRequest:
        return ReplayRequest(
            topic=self._letters,
            from_text=_FROM,
            to_text=_TO,
            into=target,
            group=None,
            letters=rules,
        )

    def _count_origins(self) -> Counter[str | None]:
        """The numbers of selected letters by the topic they come from; None: those that are left out."""
        counts: Counter[str | None] = Counter()
        rules = self._rules("topic")
        topic = describe_topic(self._cluster, self._letters)
        check_leaders(self._cluster, topic)
        spans = held_spans(self._cluster, topic.name, topic.leaders)
        reader = RecordRangeReader(self._cluster, topic.name, spans)
        try:
            for fetched in reader.batches():
                for _, records in fetched:
                    for record in records:
                        failure = failure_of(record)
                        if rules.selects_failure(record, failure):
                            is_whole = failure is not None and not failure.truncated
                            counts[failure.topic if failure is not None and is_whole else None] += 1
        finally:
            reader.close()
        return counts
