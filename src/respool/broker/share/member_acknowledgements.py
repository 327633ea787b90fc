"""What ShareFetch and ShareAcknowledge have in common: the member's session, and its acknowledgements."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from respool.broker.share.share_partition import SharePartition
from respool.broker.share.share_sessions import SessionKey, ShareTarget
from respool.broker.share.shares import Shares
from respool.coordination.share.acknowledged_ranges import acknowledged_ranges
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import ZERO_TOPIC_ID, TopicId

MEMBER_ID_LENGTH_MAX = 36

# The error for a member that may not read the topic.
RefusalOf = Callable[[ShareTarget], RequestError | None]


def session_key(body: Any) -> SessionKey:
    """
    Raises:
        InvalidRequest: the group or the member has no name, or the member's is too long.
    """
    group, member = body.group_id, body.member_id
    if not group:
        raise InvalidRequest("the request names no group")
    if not member or len(member) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(
            f"the member id has {len(member or '')} characters, not 1 to {MEMBER_ID_LENGTH_MAX}"
        )
    return SessionKey(group, member)


def targets_of(topics: Iterable[Any]) -> dict[ShareTarget, list[Any]]:
    """The partitions that a request names, and their acknowledgements; librdkafka may name a partition twice."""
    found: dict[ShareTarget, list[Any]] = {}
    for topic in topics:
        topic_id = TopicId(topic.topic_id or ZERO_TOPIC_ID)
        for one in topic.partitions:
            target = ShareTarget(topic_id, one.partition_index)
            found.setdefault(target, []).extend(one.acknowledgement_batches)
    return found


@dataclass(slots=True)
class AcknowledgementResult:
    error: RequestError | None = None


@dataclass(slots=True)
class Acknowledgements:
    """The acknowledgements of one request: applied at once, answered when they are committed."""

    results: dict[ShareTarget, AcknowledgementResult] = field(default_factory=dict)
    _stored: list[tuple[ShareTarget, "asyncio.Future[None]"]] = field(default_factory=list)

    async def apply(
        self,
        shares: Shares,
        key: SessionKey,
        batches: dict[ShareTarget, list[Any]],
        *,
        refusal_of: RefusalOf,
        is_renewing: bool,
        now_ms: int,
    ) -> None:
        """Apply those of each partition, all or none of them, to what is loaded by now."""
        for target, acknowledged in batches.items():
            if not acknowledged:
                continue
            result = self.results[target] = AcknowledgementResult(refusal_of(target))
            if result.error is not None:
                continue
            try:
                ranges = acknowledged_ranges(acknowledged, is_renewing=is_renewing)
                share = shares.find(key.group, target)
                if not share.loaded.done():
                    await asyncio.shield(share.loaded)
                machine = share.machine()
                machine.acknowledge(key.member, ranges, now_ms=now_ms)
            except RequestError as error:
                result.error = error
                continue
            share.after_change()
            self._wait_for(share, target)

    def _wait_for(self, share: SharePartition, target: ShareTarget) -> None:
        stored = share.when_stored()
        if stored is not None:
            self._stored.append((target, stored))

    async def committed(self) -> None:
        """Return when each is committed, or its write has failed."""
        for target, stored in self._stored:
            try:
                await stored
            except RequestError as error:
                self.results[target].error = error
