"""The members of a consumer group of either protocol, by their client ids."""

from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused
from respool.wire.api_table import Api


def member_clients(cluster: Cluster, group: str) -> list[str]:
    """
    Raises:
        BrokerRefused, BrokerUnreachable: the coordinator does not say.
    """
    coordinator = Coordinator(cluster, group, is_transaction=False)

    def describe(api: Api, name: str) -> list[str]:
        fields = {name: [group], "include_authorized_operations": False}
        reply = coordinator.ask(
            api,
            fields,
            doing=f"describing group {group}",
            code_of=lambda reply: reply.groups[0].error_code,
        )
        members: list[Any] = list(reply.groups[0].members)
        return [str(member.client_id) for member in members]

    try:
        return describe(Api.CONSUMER_GROUP_DESCRIBE, "group_ids")
    except BrokerRefused as error:
        # A group of the classic protocol, or none.
        if error.code != Code.group_id_not_found:
            raise
    try:
        return describe(Api.DESCRIBE_GROUPS, "groups")
    except BrokerRefused as error:
        if error.code != Code.group_id_not_found:
            raise
        return []
