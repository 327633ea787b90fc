"""Requests about committed offsets: first checked against the group, then applied to the offsets."""

from collections.abc import Callable

from respool.coordination.decision import RecordsProducer
from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_groups import ClassicGroups
from respool.coordination.groups.committed_offsets import CommittedOffsets, ExpiryRule
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_groups import ConsumerGroups
from respool.coordination.groups.group_records import write_group_key
from respool.coordination.groups.group_requests import (
    FetchedGroup,
    GroupState,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
    PartitionResult,
    TopicResult,
    TxnOffsetCommit,
)
from respool.coordination.groups.share.share_groups import ShareGroups
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    UnknownMemberId,
)
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import RequestError

# The maximum number of tombstones per decision; the rest follow at once, after other requests that are waiting.
EXPIRED_RECORDS_MAX = 5_000


class OffsetRequests:
    def __init__(
        self,
        settings: GroupSettings,
        *,
        offsets: CommittedOffsets,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        shares: ShareGroups,
    ) -> None:
        self._retention_ms = settings.offsets_retention_ms
        self._offsets = offsets
        self._classic = classic
        self._consumers = consumers
        self._shares = shares

    def commit(self, request: OffsetCommit, draft: Draft) -> OffsetCommitReply:
        try:
            self._check_commit(request, draft.now_ms)
        except RequestError as error:
            return _refused(request, error)
        topics = self._offsets.commit(
            request.group_id, request.topics, retention_ms=request.retention_ms, draft=draft
        )
        return OffsetCommitReply(topics=topics)

    def commit_in_transaction(self, request: TxnOffsetCommit, draft: Draft) -> OffsetCommitReply:
        try:
            self._check_txn_commit(request)
        except RequestError as error:
            return _refused(request, error)
        topics = self._offsets.commit(request.group_id, request.topics, draft=draft)
        draft.producer = RecordsProducer(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch
        )
        return OffsetCommitReply(topics=topics)

    def _check_txn_commit(self, request: TxnOffsetCommit) -> None:
        group = self._classic.groups.get(request.group_id)
        consumer = self._consumers.groups.get(request.group_id)
        if group is not None:
            self._classic.check_txn_commit(group, request)
        elif consumer is not None:
            consumer.check_txn_commit(request)
        elif request.group_id in self._shares.groups:
            raise _missing_group(request)
        elif request.generation < 0:
            _check_new_group(request.group_id)
        elif self._offsets.has_group(request.group_id):
            raise UnknownMemberId(f"group {request.group_id} has no members")
        else:
            raise _missing_group(request)

    def _check_commit(self, request: OffsetCommit, now_ms: int) -> None:
        group = self._classic.groups.get(request.group_id)
        consumer = self._consumers.groups.get(request.group_id)
        if group is not None:
            self._classic.check_commit(group, request, now_ms)
        elif consumer is not None:
            consumer.check_commit(request)
        elif request.group_id in self._shares.groups:
            # Share groups have no committed offsets.
            raise _missing_group(request)
        elif request.generation < 0:
            # From a consumer with manual assignment, or a tool. This commit creates the group.
            _check_new_group(request.group_id)
        elif self._offsets.has_group(request.group_id):
            raise UnknownMemberId(f"group {request.group_id} has no members")
        else:
            raise _missing_group(request)

    def fetch(self, request: OffsetFetch) -> OffsetFetchReply:
        return OffsetFetchReply(
            groups=tuple(
                self._fetch_one(asked, require_stable=request.require_stable)
                for asked in request.groups
            )
        )

    def _fetch_one(self, asked: GroupToFetch, *, require_stable: bool) -> FetchedGroup:
        consumer = self._consumers.groups.get(asked.group_id)
        try:
            if consumer is not None:
                consumer.check_fetch(asked)
        except RequestError as error:
            return FetchedGroup(asked.group_id, (), error)
        return self._offsets.fetch(asked, require_stable=require_stable)

    def delete(self, request: OffsetDelete, draft: Draft) -> OffsetDeleteReply:
        group = self._classic.groups.get(request.group_id)
        consumer = self._consumers.groups.get(request.group_id)
        if group is None and consumer is None and not self._offsets.has_group(request.group_id):
            missing = GroupIdNotFound(f"there is no group {request.group_id}")
            return OffsetDeleteReply(error=missing)
        if group is not None and group.members and not group.uses_consumer_protocol:
            # The members' subscriptions are unknown.
            return OffsetDeleteReply(error=NonEmptyGroup(f"{request.group_id} has members"))
        topics = self._offsets.delete(
            request.group_id,
            request.topics,
            reads=_reads_of(consumer or group),
            draft=draft,
        )
        return OffsetDeleteReply(topics=topics)

    def expire(self, draft: Draft) -> bool:
        """Delete expired offsets and groups; return True if there may be more."""
        group_ids = dict.fromkeys(
            [*self._offsets.group_ids(), *self._classic.groups, *self._consumers.groups]
        )
        for group_id in group_ids:
            if draft.record_count >= EXPIRED_RECORDS_MAX:
                return True
            group = self._classic.groups.get(group_id)
            consumer = self._consumers.groups.get(group_id)
            rule = _expiry_rule(group) if consumer is None else _consumer_expiry_rule(consumer)
            if rule is None:
                continue
            are_all_gone = self._offsets.expire(
                group_id, rule, retention_ms=self._retention_ms, draft=draft
            )
            if are_all_gone and group is not None and _may_go(group):
                draft.write(write_group_key(group_id), None)
            if are_all_gone and consumer is not None and not consumer.members:
                self._consumers.delete(group_id, draft)
        return False


def _check_new_group(group_id: str) -> None:
    if not fits_a_string(group_id):
        raise InvalidGroupId(f"a group id of {len(group_id)} characters")


def _missing_group(request: OffsetCommit | TxnOffsetCommit) -> RequestError:
    missing = GroupIdNotFound if request.knows_member_epochs else IllegalGeneration
    return missing(f"there is no group {request.group_id}")


def _refused(request: OffsetCommit | TxnOffsetCommit, error: RequestError) -> OffsetCommitReply:
    return OffsetCommitReply(
        topics=tuple(
            TopicResult(
                topic.topic,
                tuple(PartitionResult(one.partition, error) for one in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _expiry_rule(group: ClassicGroup | None) -> ExpiryRule | None:
    """Offsets are kept while the group has members or is subscribed, and for the retention time after that."""
    if group is None:
        return ExpiryRule(since_ms=0, reads=_reads_nothing)
    if group.state is GroupState.EMPTY:
        since_ms = 0 if group.stored is None else max(0, group.stored.since_ms)
        return ExpiryRule(since_ms=since_ms, reads=_reads_nothing)
    if group.state is GroupState.STABLE and group.knows_subscriptions:
        return ExpiryRule(since_ms=0, reads=group.reads)
    return None


def _consumer_expiry_rule(group: ConsumerGroup) -> ExpiryRule:
    if group.members:
        return ExpiryRule(since_ms=0, reads=group.reads)
    return ExpiryRule(since_ms=max(0, group.empty_since_ms), reads=_reads_nothing)


def _reads_of(group: ClassicGroup | ConsumerGroup | None) -> Callable[[str], bool]:
    return _reads_nothing if group is None else group.reads


def _may_go(group: ClassicGroup) -> bool:
    return group.state is GroupState.EMPTY and group.stored is not None and not group.pending_joins


def _reads_nothing(topic: str) -> bool:
    del topic
    return False
