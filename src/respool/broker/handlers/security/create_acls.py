"""CreateAcls (key 30): refused for each ACL. An ACL that is accepted and not enforced would protect nothing."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.handlers.support.without_security import NO_ACLS
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.CREATE_ACLS, versions=(1, 3), rights=(ALTER_CLUSTER,))
def create_acls(request: Request, _broker: Broker) -> Reply:
    results = [error_fields(NO_ACLS) for _ in request.body.creations]
    return [encode_reply(request, {"throttle_time": 0, "results": results})]
