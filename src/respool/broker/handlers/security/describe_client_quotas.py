"""DescribeClientQuotas (key 48): no client has a quota, so no filter matches one."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER_CONFIGS
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), rights=(DESCRIBE_CLUSTER_CONFIGS,))
def describe_client_quotas(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER_CONFIGS)
    entries = () if refusal is None else None
    fields = {"throttle_time": 0, **error_fields(refusal), "entries": entries}
    return [encode_reply(request, fields)]
