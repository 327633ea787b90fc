"""Leaders and followers for tests, with everything that does not matter filled in."""

from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.effects import LeaderEffect, LowWatermarkMoved, ProposeIsr
from respool.replication.leader import Leader

ONE, TWO, THREE, FOUR = (BrokerId(number) for number in range(1, 5))
EPOCH = LeaderEpoch(5)
LAG_MS = 1000


def image_of(
    *replicas: BrokerId,
    isr: tuple[BrokerId, ...] | None = None,
    elr: tuple[BrokerId, ...] = (),
    leader: BrokerId | None = ONE,
    epoch: LeaderEpoch = EPOCH,
    revision: int = 10,
    adding: tuple[BrokerId, ...] = (),
) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        isr=replicas if isr is None else isr,
        elr=elr,
        leader=leader,
        leader_epoch=epoch,
        adding=adding,
        revision=revision,
    )


def brokers_of(
    *brokers: BrokerId,
    draining: tuple[BrokerId, ...] = (),
    racks: dict[BrokerId, str] | None = None,
) -> dict[BrokerId, BrokerEndpoint]:
    """Broker n is registered with epoch 100 + n."""
    return {
        broker: BrokerEndpoint(
            id=broker,
            host="",
            port=0,
            rack=(racks or {}).get(broker),
            epoch=100 + broker,
            is_draining=broker in draining,
        )
        for broker in brokers
    }


def leader_of(
    image: PartitionImage,
    *,
    log_start: int = 0,
    log_end: int = 0,
    durable_end: int | None = None,
    high_watermark: int = 0,
    min_isr: int = 1,
    brokers: dict[BrokerId, BrokerEndpoint] | None = None,
) -> Leader:
    """A leader that has begun."""
    leader = Leader(
        ONE,
        image,
        log_start=Offset(log_start),
        log_end=Offset(log_end),
        durable_end=Offset(log_end if durable_end is None else durable_end),
        high_watermark=Offset(high_watermark),
        min_isr=min_isr,
        lag_ms_max=LAG_MS,
        brokers=brokers_of(*image.replicas) if brokers is None else brokers,
        now_ms=0,
    )
    leader.begin()
    return leader


def append(leader: Leader, log_end: int) -> list[LeaderEffect]:
    """Records are appended and durable."""
    return [*leader.on_append(Offset(log_end)), *leader.on_durable(Offset(log_end))]


def fetch(
    leader: Leader,
    broker: BrokerId,
    offset: int,
    *,
    now_ms: int = 0,
    log_start: int = 0,
    broker_epoch: int | None = None,
    leader_epoch: LeaderEpoch = EPOCH,
    with_low_watermark: bool = False,
) -> list[LeaderEffect]:
    """The fetch's effects; without those on the low watermark, which first fetches all have."""
    effects = leader.on_follower_fetch(
        broker,
        broker_epoch=100 + broker if broker_epoch is None else broker_epoch,
        leader_epoch=leader_epoch,
        durable_end=Offset(offset),
        log_start=Offset(log_start),
        now_ms=now_ms,
    )
    return [
        effect
        for effect in effects
        if with_low_watermark or not isinstance(effect, LowWatermarkMoved)
    ]


def proposal_in(effects: list[LeaderEffect]) -> ProposeIsr:
    """The one proposal among the effects."""
    (proposal,) = [effect for effect in effects if isinstance(effect, ProposeIsr)]
    return proposal
