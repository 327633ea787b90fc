"""How the broker stands, for the operator: set now and then, as of that moment."""

from respool.broker.broker import Broker
from respool.ports.metrics import Metrics


class Gauges:
    def __init__(self, metrics: Metrics) -> None:
        self._partitions = metrics.gauge("respool_partitions", "Partitions held.")
        self._offline = metrics.gauge(
            "respool_partitions_offline", "Partitions that do not serve: their disk or log failed."
        )
        self._led = metrics.gauge("respool_partitions_led", "Partitions led here.")
        self._under_replicated = metrics.gauge(
            "respool_partitions_under_replicated",
            "Partitions led here of which not every replica is in sync.",
        )
        self._under_min_isr = metrics.gauge(
            "respool_partitions_under_min_isr",
            "Partitions led here that refuse acks=all: too few replicas are in sync.",
        )
        self._controls = metrics.gauge("respool_controller", "1 where this is the controller.")
        self._log_bytes = metrics.gauge("respool_log_bytes", "Bytes of record batches held.")
        self._memory = metrics.gauge(
            "respool_memory_used_bytes", "Memory for requests and replies under way."
        )

    def report(self, broker: Broker) -> None:
        online = [one for one in broker.partitions if one.is_online]
        leaders = [one.leader for one in online if one.leader is not None]
        self._partitions.set(len(broker.partitions))
        self._offline.set(len(broker.partitions) - len(online))
        self._led.set(len(leaders))
        self._under_replicated.set(
            sum(len(one.image.isr) < len(one.image.replicas) for one in leaders)
        )
        self._under_min_isr.set(sum(not one.is_min_isr_met for one in leaders))
        self._controls.set(broker.may_act() and broker.image.controller == broker.id)
        self._log_bytes.set(sum(one.log.size_bytes for one in online))
        self._memory.set(broker.memory.used)
