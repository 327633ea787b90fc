"""UpdateFeatures (key 57): each feature has one level, so only an update to that level succeeds, and changes nothing.

As in Kafka, one refused update refuses the whole request. Whether it is to be validated only makes no difference.
"""

from typing import Any

from respool.broker.admin_log import quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.outcome import Reply
from respool.model.broker_features import FEATURES
from respool.model.errors import InvalidUpdateVersion, RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

_LEVELS = {one.name: one.level for one in FEATURES}
# In Kafka's numbers: an upgrade, a safe and an unsafe downgrade. Version 0 has a flag instead.
_UPGRADE = 1
_KINDS_OF_UPDATE = frozenset({_UPGRADE, 2, 3})


@serves(Api.UPDATE_FEATURES, versions=(0, 2), rights=(ALTER_CLUSTER,))
def update_features(request: Request, broker: Broker) -> Reply:
    updates = request.body.feature_updates
    error: RequestError | None = None
    try:
        broker.access.check(request, ALTER_CLUSTER)
        for one in updates:
            _check(one)
    except RequestError as refusal:
        error = refusal
    results = [
        {"feature": name, **error_fields(None)}
        for name in dict.fromkeys(one.feature for one in updates)
        if error is None
    ]
    return [encode_reply(request, {"throttle_time": 0, **error_fields(error), "results": results})]


def _check(update: Any) -> None:
    """
    Raises:
        InvalidUpdateVersion: the feature is unknown, or would get another level.
    """
    level = _LEVELS.get(update.feature)
    if level is None:
        raise InvalidUpdateVersion(
            f"no feature was changed: there is no feature {quoted(update.feature)} here; "
            f"there are {', '.join(_LEVELS)}"
        )
    if getattr(update, "upgrade_type", _UPGRADE) not in _KINDS_OF_UPDATE:
        raise InvalidUpdateVersion(
            f"no feature was changed: {update.feature} by upgrade type {update.upgrade_type}, "
            "which does not exist"
        )
    if update.max_version_level != level:
        raise InvalidUpdateVersion(
            f"no feature was changed: {update.feature} has level {level} in every broker of this version, "
            f"and cannot have level {update.max_version_level}"
        )
