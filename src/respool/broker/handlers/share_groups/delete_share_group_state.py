"""DeleteShareGroupState (key 86): a group coordinator deletes the state of share partitions."""

from respool.broker.broker import Broker
from respool.broker.coordinators.state_operations import DELETE
from respool.broker.handlers.support.broker_state_requests import carry_out_for_broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CLUSTER_ACTION
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.DELETE_SHARE_GROUP_STATE, versions=(0, 0), rights=(CLUSTER_ACTION,))
async def delete_share_group_state(request: Request, broker: Broker) -> Reply:
    return await carry_out_for_broker(request, broker, DELETE)
