"""ApiVersions (key 18): which APIs this broker serves, in which versions, and which features are enabled.

If the version of this request itself is too new, the wire layer answers it before it gets here (KIP-511).
"""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.outcome import Outcome
from respool.model.errors import RebootstrapRequired
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, encode_reply

# Each feature switches clients to a protocol that must be complete here. From level 2 of this one on, producers bump
# their epoch with every transaction and add partitions by writing to them (KIP-890).
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2
# Clients that use older versions of the request cannot parse features whose minimum level is 0 (KAFKA-17011).
FEATURES_VERSION = 4
FEATURES_EPOCH = 0


@serves(Api.API_VERSIONS, versions=(0, 5), rights=())
def api_versions(request: Request, broker: Broker) -> Outcome:
    if _is_misrouted(request.body, broker):
        refused = {"error_code": RebootstrapRequired.code, "api_keys": (), "throttle_time": 0}
        return [encode_reply(request, refused)]
    fields: dict[str, object] = {
        "error_code": 0,
        "api_keys": [
            {"api_key": api.key, "min_version": api.advertised_min, "max_version": api.version_max}
            for api in API_TABLE.values()
        ],
        "throttle_time": 0,
    }
    if request.version >= FEATURES_VERSION:
        fields |= _FEATURES
    return [encode_reply(request, fields)]


def _is_misrouted(body: Any, broker: Broker) -> bool:
    """True if the client means to reach another broker, for example because an address has changed hands (KIP-1242).

    It names both cluster and broker, or neither.
    """
    cluster_id = getattr(body, "cluster_id", None)
    if cluster_id is None:
        return False
    return bool(cluster_id != broker.image.cluster_id or body.node_id != broker.settings.broker_id)


_FEATURES: dict[str, object] = {
    "supported_features": [
        {"name": TRANSACTION_VERSION, "min_version": 0, "max_version": TRANSACTION_LEVEL}
    ],
    "finalized_features_epoch": FEATURES_EPOCH,
    "finalized_features": [
        {
            "name": TRANSACTION_VERSION,
            "max_version_level": TRANSACTION_LEVEL,
            "min_version_level": TRANSACTION_LEVEL,
        }
    ],
}
