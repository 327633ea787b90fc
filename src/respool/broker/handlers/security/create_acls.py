"""CreateAcls (key 30): create ACLs. Each succeeds or fails on its own; one that exists already succeeds."""

from typing import Any

from respool.broker.admin_log import listed
from respool.broker.broker import Broker
from respool.broker.handlers.support.acl_fields import acl_of
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.handlers.support.without_security import NO_ACLS
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.acl import AclBinding
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.CREATE_ACLS, versions=(1, 3), rights=(ALTER_CLUSTER,))
async def create_acls(request: Request, broker: Broker) -> Reply:
    creations = request.body.creations
    refusal = broker.access.refusal(request, ALTER_CLUSTER) if broker.access.is_on else NO_ACLS
    results: list[RequestError | None] = [refusal] * len(creations)
    if refusal is None:
        asked = [_acl(one) for one in creations]
        try:
            results = await broker.access_changes.create(asked)
        except RequestError as error:
            results = [error] * len(creations)
        created = [
            str(one)
            for one, error in zip(asked, results, strict=True)
            if isinstance(one, AclBinding) and error is None
        ]
        if created:
            broker.admin_log.log(request, f"created ACLs: {listed(created)}")
    fields = {"throttle_time": 0, "results": [error_fields(one) for one in results]}
    return [encode_reply(request, fields)]


def _acl(creation: Any) -> AclBinding | RequestError:
    try:
        return acl_of(creation)
    except RequestError as error:
        return error
