"""How large a record batch a topic takes, asked before the first one is made: so none is made too large."""

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import VersionUnsupported
from respool.wire.api_table import Api

_TOPIC = 2
_NAME = "max.message.bytes"


def batch_bytes_max(cluster: Cluster, topic: str) -> int | None:
    """The topic's max.message.bytes; None where brokers do not tell, as those may that let nobody look.

    Raises:
        BrokerUnreachable: none answers.
    """
    fields = {
        "resources": [
            {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": [_NAME]}
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }
    try:
        reply = cluster.request_any(Api.DESCRIBE_CONFIGS, fields)
    except VersionUnsupported:
        return None
    for result in reply.results:
        for entry in result.configs:
            if entry.name == _NAME and entry.value and str(entry.value).isdigit():
                return int(entry.value)
    return None
