"""InitializeShareGroupState (key 83): a group coordinator gives share partitions a state, or another start."""

from respool.broker.broker import Broker
from respool.broker.coordinators.state_operations import INITIALIZE
from respool.broker.handlers.support.broker_state_requests import carry_out_for_broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CLUSTER_ACTION
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0), rights=(CLUSTER_ACTION,))
async def initialize_share_group_state(request: Request, broker: Broker) -> Reply:
    return await carry_out_for_broker(request, broker, INITIALIZE)
