"""UnregisterBroker (key 64): remove a stopped broker without replicas from the cluster, as `respool cluster remove`.

Kafka removes any broker. One that runs would join again at once, and replicas of one that is gone would be missing
for good: here the broker must be stopped, and drained.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.metadata.broker_removal import unregister
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.ids import BrokerId
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.UNREGISTER_BROKER, versions=(0, 0), rights=(ALTER_CLUSTER,))
async def unregister_broker(request: Request, broker: Broker) -> Reply:
    denied = broker.access.refusal(request, ALTER_CLUSTER)
    if denied is not None:
        return [encode_reply(request, {"throttle_time": 0, **error_fields(denied)})]
    removed = BrokerId(request.body.broker_id)
    refusal: RequestError | None = None
    try:
        await unregister(broker.catalog, removed)
    except RequestError as error:
        refusal = error
        # Older Java clients show only the code, and refer to the broker's log.
        broker.admin_log.log(request, f"refused to unregister broker {removed}: {error.message}")
    else:
        broker.admin_log.log(request, f"removed broker {removed} from the cluster")
    return [encode_reply(request, {"throttle_time": 0, **error_fields(refusal)})]
