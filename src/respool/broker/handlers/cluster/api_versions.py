"""ApiVersions (key 18): which APIs this broker serves, in which versions, and which features are enabled.

If the version of this request itself is too new, the wire layer answers it before it gets here (KIP-511).
"""

from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.outcome import Outcome
from respool.model.broker_features import FEATURES, Feature
from respool.model.errors import RebootstrapRequired
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, encode_reply

# From here on replies have features.
FEATURES_VERSION = 3
# Clients that use older versions of the request cannot parse features whose minimum level is 0 (KAFKA-17011).
FEATURES_FROM_ZERO_VERSION = 4
# Clients take features with an epoch below 0 for unknown. Ours never change while a broker runs.
FEATURES_EPOCH = 0


@serves(Api.API_VERSIONS, versions=(0, 5), rights=())
def api_versions(request: Request, broker: Broker) -> Outcome:
    if _is_misrouted(request.body, broker):
        fields: dict[str, object] = {"error_code": RebootstrapRequired.code, "api_keys": ()}
        return [encode_reply(request, {**fields, "throttle_time": 0})]
    fields = {
        "error_code": 0,
        "api_keys": [
            {"api_key": api.key, "min_version": api.advertised_min, "max_version": api.version_max}
            for api in API_TABLE.values()
            if api.is_announced
        ],
        "throttle_time": 0,
    }
    if request.version >= FEATURES_FROM_ZERO_VERSION:
        fields |= _features(*FEATURES)
    elif request.version >= FEATURES_VERSION:
        fields |= _features(*(one for one in FEATURES if one.level_min > 0))
    return [encode_reply(request, fields)]


def _is_misrouted(body: Any, broker: Broker) -> bool:
    """True if the client means to reach another broker, for example because an address has changed hands (KIP-1242).

    It names both cluster and broker, or neither.
    """
    cluster_id = getattr(body, "cluster_id", None)
    if cluster_id is None:
        return False
    return bool(cluster_id != broker.image.cluster_id or body.node_id != broker.settings.broker_id)


def _features(*features: Feature) -> dict[str, object]:
    return {
        "supported_features": [
            {"name": one.name, "min_version": one.level_min, "max_version": one.level}
            for one in features
        ],
        "finalized_features_epoch": FEATURES_EPOCH,
        "finalized_features": [
            {"name": one.name, "max_version_level": one.level, "min_version_level": one.level}
            for one in features
        ],
    }
