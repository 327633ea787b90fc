"""ApiVersions (key 18): which APIs this broker speaks, in which versions.

A version of this request that is too new is answered by the wire, before it gets here (KIP-511).
"""

from respool.broker.broker import Broker
from respool.broker.outcome import Outcome
from respool.wire.api_table import API_TABLE
from respool.wire.codec import Request, encode_reply


def api_versions(request: Request, _broker: Broker) -> Outcome:
    apis = [
        {"api_key": api.key, "min_version": api.advertised_min, "max_version": api.version_max}
        for api in API_TABLE.values()
    ]
    # No features yet: each one here would switch clients to a protocol we must then complete.
    return [encode_reply(request, {"error_code": 0, "api_keys": apis, "throttle_time": 0})]
