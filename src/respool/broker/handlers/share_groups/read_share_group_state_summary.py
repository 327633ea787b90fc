"""ReadShareGroupStateSummary (key 87): where share partitions begin, for descriptions of groups."""

from respool.broker.broker import Broker
from respool.broker.coordinators.state_operations import SUMMARIZE
from respool.broker.handlers.support.broker_state_requests import carry_out_for_broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CLUSTER_ACTION
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.READ_SHARE_GROUP_STATE_SUMMARY, versions=(1, 1), rights=(CLUSTER_ACTION,))
async def read_share_group_state_summary(request: Request, broker: Broker) -> Reply:
    return await carry_out_for_broker(request, broker, SUMMARIZE)
