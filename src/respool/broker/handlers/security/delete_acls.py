"""DeleteAcls (key 31): delete the ACLs that filters select, and return them. A filter that selects none succeeds."""

from typing import Any

from respool.broker.admin_log import listed
from respool.broker.broker import Broker
from respool.broker.handlers.support.acl_fields import entry_fields, filter_of, pattern_fields
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.handlers.support.without_security import NO_ACLS
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.acl import AclBinding, AclFilter
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DELETE_ACLS, versions=(1, 3), rights=(ALTER_CLUSTER,))
async def delete_acls(request: Request, broker: Broker) -> Reply:
    filters = request.body.filters
    refusal = broker.access.refusal(request, ALTER_CLUSTER) if broker.access.is_on else NO_ACLS
    results: list[list[AclBinding] | RequestError]
    if refusal is not None:
        results = [refusal for _ in filters]
    else:
        try:
            results = await broker.access_changes.delete([_filter(one) for one in filters])
        except RequestError as error:
            results = [error for _ in filters]
    deleted = [str(acl) for one in results if not isinstance(one, RequestError) for acl in one]
    if deleted:
        broker.admin_log.log(request, f"deleted ACLs: {listed(deleted)}")
    fields = {"throttle_time": 0, "filter_results": [_result(one) for one in results]}
    return [encode_reply(request, fields)]


def _filter(fields: Any) -> AclFilter | RequestError:
    try:
        return filter_of(fields)
    except RequestError as error:
        return error


def _result(result: list[AclBinding] | RequestError) -> dict[str, object]:
    if isinstance(result, RequestError):
        return {**error_fields(result), "matching_acls": ()}
    matching = [
        {**error_fields(None), **pattern_fields(one.pattern), **entry_fields(one.entry)}
        for one in result
    ]
    return {**error_fields(None), "matching_acls": matching}
