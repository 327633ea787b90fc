"""DescribeAcls (key 29): there are no ACLs, because the broker does not authorize requests."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.handlers.support.without_security import NO_ACLS
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DESCRIBE_ACLS, versions=(1, 3), rights=(DESCRIBE_CLUSTER,))
def describe_acls(request: Request, _broker: Broker) -> Reply:
    fields = {"throttle_time": 0, **error_fields(NO_ACLS), "resources": ()}
    return [encode_reply(request, fields)]
