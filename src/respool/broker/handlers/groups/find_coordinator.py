"""FindCoordinator (key 10): which broker coordinates a group, a transactional id or a share partition.

The coordinators' internal topic is created when the first client asks. The reply does not depend on whether the
coordinator has loaded its partition: the coordinator itself tells clients while it is loading.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from respool.broker.broker import Broker
from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.broker.handlers.support.listener_addresses import reached
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import (
    CLUSTER_ACTION,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTIONAL_ID,
    Right,
)
from respool.broker.outcome import Reply
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.model.errors import InvalidRequest, RequestError, RequestTimedOut
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

# From this version on a request may name several keys (KIP-699).
SEVERAL_KEYS_VERSION = 4
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:[0-9]{1,10}", re.DOTALL)
NO_COORDINATOR = {"node_id": -1, "host": "", "port": -1}


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    # Between brokers in Kafka; here only tools ask.
    SHARE = 2


_RIGHTS: Mapping[int, Right] = {
    KeyType.GROUP: DESCRIBE_GROUP,
    KeyType.TRANSACTION: DESCRIBE_TRANSACTIONAL_ID,
    KeyType.SHARE: CLUSTER_ACTION,
}


@serves(
    Api.FIND_COORDINATOR,
    versions=(0, 6),
    rights=(
        DESCRIBE_GROUP.when("the key is a group"),
        DESCRIBE_TRANSACTIONAL_ID.when("the key is a transactional id"),
        CLUSTER_ACTION.when("the key is a share partition"),
    ),
)
async def find_coordinator(request: Request, broker: Broker) -> Reply:
    body = request.body
    key_type = getattr(body, "key_type", KeyType.GROUP)
    several = request.version >= SEVERAL_KEYS_VERSION
    refusals = _refusals(
        request, broker, key_type, body.coordinator_keys if several else [body.key]
    )
    if refusals and all(refusals.values()):
        # Nothing is created for a client that may not ask.
        find = _nobody_for(refusals)
    else:
        find = await _finder(request, broker, key_type, refusals)
    if not several:
        return [encode_reply(request, {"throttle_time": 0, **find(body.key)})]
    coordinators = [{"key": key, **find(key)} for key in body.coordinator_keys]
    return [encode_reply(request, {"throttle_time": 0, "coordinators": coordinators})]


def _refusals(
    request: Request, broker: Broker, key_type: int, keys: Iterable[str]
) -> dict[str, RequestError | None]:
    if not broker.access.is_on or key_type not in _RIGHTS:
        return {}
    right = _RIGHTS[key_type]
    return {key: broker.access.refusal(request, right, key) for key in keys}


def _nobody_for(refusals: Mapping[str, RequestError | None]) -> Callable[[str], dict[str, object]]:
    def find(name: str) -> dict[str, object]:
        refusal = refusals[name]
        assert refusal is not None
        return _nobody(refusal)

    return find


async def _finder(
    request: Request, broker: Broker, key_type: int, refusals: Mapping[str, RequestError | None]
) -> Callable[[str], dict[str, object]]:
    """Return a function from a key to its coordinator, or to the error that prevents finding one."""
    try:
        runtimes = _runtimes(broker, key_type)
        await _ensure_topic(runtimes)
    except RequestError as error:
        why = error
        return lambda _: _nobody(why)

    def find(name: str) -> dict[str, object]:
        refusal = refusals.get(name)
        if refusal is not None:
            return _nobody(refusal)
        try:
            if key_type == KeyType.SHARE:
                _check_share_key(name)
            leader = reached(runtimes.leader_of(name), request.session)
            if leader is None:
                raise CoordinatorNotAvailable("the coordinator does not have this listener")
        except RequestError as error:
            return _nobody(error)
        return {
            "node_id": leader.id,
            "host": leader.host,
            "port": leader.port,
            **error_fields(None),
        }

    return find


def _nobody(error: RequestError) -> dict[str, object]:
    return {**NO_COORDINATOR, **error_fields(error)}


def _runtimes(broker: Broker, key_type: int) -> CoordinatorRuntimes:
    if key_type == KeyType.GROUP:
        return broker.groups.runtimes
    if key_type == KeyType.TRANSACTION:
        return broker.transactions.runtimes
    if key_type == KeyType.SHARE:
        return broker.coordinators.shares.runtimes
    raise InvalidRequest(f"there is no coordinator of type {key_type}")


def _check_share_key(name: str) -> None:
    """
    Raises:
        InvalidRequest: the key is not `group:topicId:partition`; the group may contain colons.
    """
    if _SHARE_KEY.fullmatch(name) is None:
        raise InvalidRequest(f"{name[:100]!r} is not group:topicId:partition")


async def _ensure_topic(runtimes: CoordinatorRuntimes) -> None:
    try:
        await runtimes.ensure_topic()
    except RequestError as error:
        # Most clients retry forever, so the log has to tell the operator the reason.
        # An unavailable store is transient, and logged elsewhere.
        level = logging.WARNING if isinstance(error, RequestTimedOut) else logging.ERROR
        runtimes.topic_failures.log(
            level,
            "the topic %s cannot be created: %s",
            runtimes.topic,
            error,
            now_s=asyncio.get_running_loop().time(),
        )
        raise CoordinatorNotAvailable(f"{runtimes.topic} cannot be created: {error}") from error
    runtimes.topic_failures.clear()
