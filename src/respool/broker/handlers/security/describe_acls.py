"""DescribeAcls (key 29): the ACLs that a filter selects, by resource."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.acl_fields import entry_fields, filter_of, pattern_fields
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.handlers.support.without_security import NO_ACLS
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.acl import AclEntry, ResourcePattern
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DESCRIBE_ACLS, versions=(1, 3), rights=(DESCRIBE_CLUSTER,))
def describe_acls(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER) if broker.access.is_on else NO_ACLS
    selected: dict[ResourcePattern, list[AclEntry]] = {}
    try:
        if refusal is not None:
            raise refusal
        wanted = filter_of(request.body)
        for pattern, stored in broker.image.acls.by_pattern.items():
            if wanted.selects_pattern(pattern):
                entries = [one for one in stored.entries if wanted.selects_entry(one)]
                if entries:
                    selected[pattern] = entries
    except RequestError as error:
        return [encode_reply(request, {"throttle_time": 0, **error_fields(error), "resources": ()})]
    resources = [
        {**pattern_fields(pattern), "acls": [entry_fields(one) for one in entries]}
        for pattern, entries in selected.items()
    ]
    fields = {"throttle_time": 0, **error_fields(None), "resources": resources}
    return [encode_reply(request, fields)]
