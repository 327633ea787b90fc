"""Fetch (key 1): return record bytes as they are in the log, or wait until there are some."""

from functools import partial

from respool.broker.broker import Broker
from respool.broker.fetch.fetch_rights import FetchRights
from respool.broker.fetch.fetch_run import FetchRun
from respool.broker.fetch.reader_condition import reader_condition
from respool.broker.fetch.readers import ConsumerReader, FollowerReader, Reader
from respool.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchScope,
    FetchTarget,
    TopicRef,
)
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CLUSTER_ACTION, READ_TOPIC
from respool.broker.outcome import CloseConnection, Outcome, Reply
from respool.model.errors import RequestError
from respool.model.ids import ZERO_TOPIC_ID, BrokerId
from respool.ports.disk import NotCached
from respool.records.mirrored_batches import MIRROR_CLIENT_ID
from respool.wire.api_table import Api
from respool.wire.codec import Request
from respool.wire.hot_replies import encode_fetch_reply

TOPIC_IDS_FROM_VERSION = 13
READ_COMMITTED = 1


@serves(
    Api.FETCH,
    versions=(4, 18),
    rights=(READ_TOPIC.when("a consumer fetches"), CLUSTER_ACTION.when("a replica fetches")),
)
def fetch(request: Request, broker: Broker) -> Outcome:
    reader = _reader(request, broker)
    is_of_replica = isinstance(reader, FollowerReader)
    bytes_max = request.body.max_bytes
    if not is_of_replica:
        bytes_max = broker.quotas.fetch_room(request, bytes_max)
    try:
        scope = _scope(request, broker, is_throttled=not bytes_max)
    except RequestError as error:
        return encode_fetch_reply(
            request.correlation_id,
            request.version,
            [],
            error_code=error.code,
            throttle_ms=request.throttle_ms,
        )
    if not bytes_max:
        return _without_records(request, scope.session_id)
    rights = FetchRights(
        request,
        broker.access,
        broker.catalog,
        scope.targets,
        read=READ_TOPIC,
        replicate=CLUSTER_ACTION if is_of_replica else None,
    )
    if broker.auto_created:
        broker.auto_created.on_used(
            target.topic for target in scope.targets if target.topic not in rights.refused
        )
    # Nothing that a stranger claims about its log is believed.
    if isinstance(reader, FollowerReader) and request.session.is_broker and not rights.refused:
        request.is_of_follower = reader.is_registered
        reader.hear(scope.targets)
    run = FetchRun(
        broker=broker,
        scope=scope,
        version=request.version,
        correlation_id=request.correlation_id,
        bytes_min=request.body.min_bytes,
        bytes_max=bytes_max,
        wait_max_s=max(0.0, request.body.max_wait.total_seconds()),
        reader=reader,
        is_of_follower=request.is_of_follower,
        rights=rights,
        throttle_ms=request.throttle_ms,
        on_encoded=None if is_of_replica else partial(broker.quotas.on_fetched, request.session),
    )
    if not run.has_room:
        request.waits_for_others = True
        return run.answer_when_room()
    try:
        answer = run.read(cached_only=True)
    except NotCached:
        return run.answer_from_disk(request)
    if run.is_enough(answer) and not run.archived.is_waited_for:
        return run.encode(answer)
    request.waits_for_others = True
    return run.answer_later(answer)


def _without_records(request: Request, session_id: int) -> Reply:
    """The reply to a client that is over its quota (KIP-219)."""
    return encode_fetch_reply(
        request.correlation_id,
        request.version,
        [],
        session_id=session_id,
        throttle_ms=request.throttle_ms,
    )


def _reader(request: Request, broker: Broker) -> Reader:
    body = request.body
    state = getattr(body, "replica_state", None)
    replica_id = state.replica_id if state is not None else body.replica_id
    local_reader = broker.world.local_reader
    reads_locally = (
        local_reader is not None
        and getattr(body, "reader_host", "") == local_reader.host
        and (replica_id >= 0 or _may_read_files(broker))
    )
    if replica_id < 0:
        return ConsumerReader(
            broker,
            version=request.version,
            read_committed=body.isolation_level == READ_COMMITTED,
            rack=getattr(body, "rack_id", ""),
            is_mirror=request.client_id == MIRROR_CLIENT_ID,
            reads_locally=reads_locally,
            wanted=reader_condition(getattr(body, "condition", "")),
        )
    if not request.session.is_broker and not broker.access.is_on:
        # A replica id is a claim: CVE-2018-1288. With ACLs on, each partition is refused instead.
        raise CloseConnection(f"fetch as replica {replica_id}: the client did not prove this")
    if broker.member is None or state is None:
        raise CloseConnection(f"fetch as replica {replica_id}: this broker has no such followers")
    return FollowerReader(
        broker,
        follower=BrokerId(replica_id),
        broker_epoch=state.replica_epoch,
        reads_locally=reads_locally,
    )


def _may_read_files(broker: Broker) -> bool:
    """Readers that may open the log's files read every topic: where ACLs are used, that must be allowed explicitly."""
    return not broker.access.is_on or "local_reads" in broker.settings.given


def _scope(request: Request, broker: Broker, *, is_throttled: bool) -> FetchScope:
    body = request.body
    epoch = getattr(body, "session_epoch", FINAL_EPOCH)
    if is_throttled and epoch == INITIAL_EPOCH:
        # The client will ask for the session again.
        epoch = FINAL_EPOCH
    by_id = request.version >= TOPIC_IDS_FROM_VERSION
    targets = [
        FetchTarget(
            topic=_ref(topic, by_id=by_id),
            partition=one.partition,
            fetch_offset=one.fetch_offset,
            bytes_max=one.partition_max_bytes,
            leader_epoch=getattr(one, "current_leader_epoch", -1),
            last_fetched_epoch=getattr(one, "last_fetched_epoch", -1),
            log_start=getattr(one, "log_start_offset", -1),
            durable_end=getattr(one, "durable_end", -1),
        )
        for topic in body.topics
        for one in topic.partitions
    ]
    forgotten = [
        (_ref(topic, by_id=by_id), partition)
        for topic in getattr(body, "forgotten_topics_data", ())
        for partition in topic.partitions
    ]
    return broker.fetch_sessions.scope(
        session_id=getattr(body, "session_id", 0),
        epoch=epoch,
        # A partition that is named several times is read once, with its last fields.
        targets=list({one.key: one for one in targets}.values()),
        forgotten=forgotten,
        uses_topic_ids=by_id,
        now_ms=broker.clock.monotonic_ms(),
        owner=request.session.principal,
    )


def _ref(topic: object, *, by_id: bool) -> TopicRef:
    if by_id:
        return getattr(topic, "topic_id", None) or ZERO_TOPIC_ID
    return str(getattr(topic, "topic", ""))
