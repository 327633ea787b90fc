"""ElectLeaders (key 43): elect the preferred leaders, or unclean leaders where no in-sync replica runs (KIP-460).

No partitions named (null) means all; the reply then omits those that need no election.
"""

from respool.broker.admin_log import listed
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import by_topic, error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.metadata.partition_changes import Answers, PartitionChanges
from respool.broker.outcome import Reply
from respool.cluster.partition_requests import ElectionKind
from respool.model.errors import InvalidRequest, RequestError
from respool.model.ids import TopicPartition
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ELECT_LEADERS, versions=(0, 2), rights=(ALTER_CLUSTER,))
async def elect_leaders(request: Request, broker: Broker) -> Reply:
    asked = request.body.topic_partitions
    partitions = None
    if asked is not None:
        partitions = [
            TopicPartition(one.topic, number) for one in asked for number in one.partitions
        ]
    refusal = broker.access.refusal(request, ALTER_CLUSTER)
    if refusal is not None:
        # The tool looks at the partitions only.
        refused: Answers = dict.fromkeys(partitions or (), refusal)
        return [encode_reply(request, {**_fields(refused), "error_code": refusal.code})]
    try:
        # Version 0 has only preferred elections.
        kind = _kind(getattr(request.body, "election_type", ElectionKind.PREFERRED.value))
        answers = await PartitionChanges(broker.catalog).elect(kind, partitions)
    except RequestError as error:
        return [encode_reply(request, {**_fields({}), "error_code": error.code})]
    elected = [str(of) for of, error in answers.items() if error is None]
    if elected:
        what = f"elected leaders ({kind.name.lower()}): {listed(elected)}"
        broker.admin_log.log(request, what)

    return [encode_reply(request, _fields(answers))]


def _kind(number: int) -> ElectionKind:
    try:
        return ElectionKind(number)
    except ValueError:
        raise InvalidRequest(f"there is no election type {number}") from None


def _fields(answers: Answers) -> dict[str, object]:
    return {
        "throttle_time": 0,
        "error_code": 0,
        "replica_election_results": [
            {
                "topic": topic,
                "partition_result": [
                    {"partition_id": number, **error_fields(error)} for number, error in results
                ],
            }
            for topic, results in by_topic(answers)
        ],
    }
