"""DescribeClientQuotas (key 48): the quotas whose entities match the filter.

Each component of the filter names a type and one name, the default (null) or any. An entity matches if it has a
matching name for each component; with `strict` it must have no other types.
"""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER_CONFIGS
from respool.broker.outcome import Reply
from respool.model.errors import InvalidRequest, RequestError
from respool.model.security.quota import CLIENT_ID, IP, USER, QuotaEntity
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

EXACT = 0
DEFAULT = 1
SPECIFIED = 2


@serves(Api.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), rights=(DESCRIBE_CLUSTER_CONFIGS,))
def describe_client_quotas(request: Request, broker: Broker) -> Reply:
    try:
        broker.access.check(request, DESCRIBE_CLUSTER_CONFIGS)
        _check(request.body.components)
    except RequestError as error:
        return [encode_reply(request, {"throttle_time": 0, **error_fields(error), "entries": None})]
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": name, "value": value} for name, value in stored.limits.items()],
        }
        for entity, stored in broker.image.quotas.by_entity.items()
        if _matches(request.body, entity)
    ]
    return [encode_reply(request, {"throttle_time": 0, **error_fields(None), "entries": entries})]


def _check(components: Any) -> None:
    kinds = [one.entity_type for one in components]
    if len(set(kinds)) < len(kinds):
        raise InvalidRequest("the filter has two components of one type")
    for one in components:
        if one.entity_type not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"{one.entity_type!r} is not an entity type of quotas")
        if one.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise InvalidRequest(f"there is no match type {one.match_type}")
        if one.match_type == EXACT and one.match is None:
            raise InvalidRequest(f"the filter names no {one.entity_type}")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequest("a quota of an address has no user and no client id")


def _matches(body: Any, entity: QuotaEntity) -> bool:
    names = dict(entity)
    for one in body.components:
        if one.entity_type not in names:
            return False
        name = names[one.entity_type]
        if one.match_type == EXACT and name != one.match:
            return False
        if one.match_type == DEFAULT and name is not None:
            return False
    return not body.strict or len(names) == len(body.components)
