"""Which brokers there are, and who controls them, as the metadata store says."""

from uuid import UUID

from broker.running_broker import RunningBroker
from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint
from respool.model.ids import BrokerId
from respool.wire.api_table import Api

ME, OTHER = BrokerId(1), BrokerId(2)


def hear(
    broker: RunningBroker, puts: dict[str, bytes] | None = None, deletes: tuple[str, ...] = ()
) -> None:
    async def write() -> None:
        await broker.store.transact(puts=puts or {}, deletes=deletes)
        await broker.broker.catalog._feed.load()

    broker.run(write())


def registered(broker: BrokerId, *, is_draining: bool = False) -> dict[str, bytes]:
    endpoint = BrokerEndpoint(
        id=broker, host=f"host-{broker}", port=9092, rack="a", is_draining=is_draining
    )
    registration = keys.BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=broker))
    return {keys.broker_key(broker): keys.encode_broker(registration)}


def test_a_broker_alone_knows_itself(running_broker: RunningBroker) -> None:
    image = running_broker.broker.image
    assert list(image.brokers) == [ME]
    assert image.controller == ME


def test_others_come_and_go_with_their_registrations(running_broker: RunningBroker) -> None:
    hear(running_broker, registered(OTHER))
    image = running_broker.broker.image
    assert {one: image.brokers[one].host for one in image.brokers} == {
        ME: image.brokers[ME].host,
        OTHER: "host-2",
    }
    # The broker epoch is the revision of its registration.
    assert image.brokers[OTHER].epoch == image.revision

    hear(running_broker, deletes=(keys.broker_key(OTHER),))

    assert list(running_broker.broker.image.brokers) == [ME]


def test_clients_are_told_of_all_brokers_and_of_the_controller(
    running_broker: RunningBroker,
) -> None:
    hear(running_broker, {**registered(OTHER), keys.CONTROLLER: keys.encode_controller(OTHER)})

    told = running_broker.ask(
        Api.METADATA,
        12,
        topics=[],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )

    assert {one.node_id for one in told.brokers} == {ME, OTHER}
    assert told.controller_id == OTHER


def test_a_registration_that_changes_keeps_its_epoch(running_broker: RunningBroker) -> None:
    hear(running_broker, registered(OTHER))
    epoch = running_broker.broker.image.brokers[OTHER].epoch
    endpoint = BrokerEndpoint(id=OTHER, host="host-2", port=9092, epoch=epoch, is_draining=True)
    registration = keys.BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=2))
    hear(running_broker, {keys.broker_key(OTHER): keys.encode_broker(registration)})

    other = running_broker.broker.image.brokers[OTHER]
    assert (other.epoch, other.is_draining) == (epoch, True)
