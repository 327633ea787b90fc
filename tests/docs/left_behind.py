"""What examples leave on a broker and beside it: topics, groups, transactional ids and files, each with its state."""

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from docs.runnable import Served
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.transactions import describe_transactions, list_transactions

TIMEOUT_S = 15.0

State = dict[str, object]


def state_of(broker: Served) -> State:
    """By a name such as "topic rides". Two states that differ in it: somebody wrote to it, or committed."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    return _topics(admin) | _groups(admin) | _transactional_ids(broker) | _files(broker)


def changed(before: State, after: State) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _topics(admin: AdminClient) -> State:
    found = admin.list_topics(timeout=TIMEOUT_S).topics.values()
    ends = admin.list_offsets(
        {
            TopicPartition(topic.topic, number): OffsetSpec.latest()
            for topic in found
            if not topic.topic.startswith("__")
            for number in topic.partitions
        }
    )
    state: dict[str, list[tuple[int, int]]] = {}
    for place, end in ends.items():
        listed = state.setdefault(f"topic {place.topic}", [])
        listed.append((place.partition, end.result(TIMEOUT_S).offset))
    return {name: sorted(listed) for name, listed in state.items()}


def _groups(admin: AdminClient) -> State:
    state: State = {}
    for group in admin.list_consumer_groups().result(TIMEOUT_S).valid:
        wanted = [ConsumerGroupTopicPartitions(group.group_id)]
        offsets = admin.list_consumer_group_offsets(wanted)[group.group_id].result(TIMEOUT_S)
        state[f"group {group.group_id}"] = sorted(
            (one.topic, one.partition, one.offset) for one in offsets.topic_partitions
        )
    return state


def _transactional_ids(broker: Served) -> State:
    with Cluster(broker.address) as cluster:
        names = [one.transactional_id for one in list_transactions(cluster)]
        described = describe_transactions(cluster, names)
    return {
        f"transactional id {name}": (one.producer_id, one.producer_epoch)
        for name, one in described.items()
    }


def _files(broker: Served) -> State:
    # Not the broker's folder and log, nor what is hidden: kio imports hypothesis where it can, which keeps a cache.
    beside = broker.data.parent
    theirs = [one for one in beside.iterdir() if not one.name.startswith((".", broker.data.name))]
    return {
        f"file {path.relative_to(beside)}": path.stat().st_mtime_ns
        for one in theirs
        for path in (one, *one.rglob("*"))
        if path.is_file()
    }
