"""AlterClientQuotas (key 49): quotas are not enforced, so none is accepted. Removing one that is not there succeeds."""

from typing import Any

from respool.broker.admin_log import listed, quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS
from respool.broker.outcome import Reply
from respool.model.errors import RequestError, UnsupportedVersion
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ALTER_CLIENT_QUOTAS, versions=(0, 1), rights=(ALTER_CLUSTER_CONFIGS,))
def alter_client_quotas(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, ALTER_CLUSTER_CONFIGS)
    entries = [
        {
            **error_fields(refusal or _why_not(entry.ops)),
            "entity": [
                {"entity_type": one.entity_type, "entity_name": one.entity_name}
                for one in entry.entity
            ],
        }
        for entry in request.body.entries
    ]
    return [encode_reply(request, {"throttle_time": 0, "entries": entries})]


def _why_not(changes: Any) -> RequestError | None:
    wanted = [quoted(one.key) for one in changes if not one.remove]
    if not wanted:
        return None
    return UnsupportedVersion(
        f"this broker does not enforce quotas, so it accepts none: {listed(wanted)}"
    )
