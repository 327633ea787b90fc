"""Controller election: this broker campaigns; while it is the controller, it makes the decisions that are due.

The controller's key is bound to the broker's lease. Decisions (`cluster/controller_decisions.py`) are written under its
guard, which fences writes from a deposed controller.
"""

import asyncio
import logging
from dataclasses import replace
from typing import NoReturn

from respool.broker.membership.broker_lifecycle import BrokerLifecycle
from respool.broker.metadata.catalog import Catalog
from respool.cluster import controller_decisions
from respool.cluster.liveness import MissingBrokers
from respool.cluster.strays import StrayAges
from respool.cluster.view import ClusterView
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId
from respool.ports.clock import Clock
from respool.ports.metadata_store import GuardFailed, LeaseExpired, StoreUnavailable

logger = logging.getLogger(__name__)

# The controller checks this often even if it has seen no change.
LOOK_EVERY_S = 5.0
RETRY_DELAY_S = 0.25
LEADER_CHECK_EVERY_MS = 5 * 60_000


class ControllerElection:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        lifecycle: BrokerLifecycle,
        clock: Clock,
        settings: ControllerSettings | None = None,
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._lifecycle = lifecycle
        self._clock = clock
        self._settings = settings or ControllerSettings()
        self._absences = MissingBrokers()
        self._stray_ages = StrayAges()
        self._leaders_checked_at_ms: int | None = None
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something has changed, so a decision may be due."""
        self._woken.set()

    async def run(self) -> NoReturn:
        while True:
            try:
                await self.look()
            except (GuardFailed, LeaseExpired, StoreUnavailable) as error:
                # Another broker was faster, or the outcome is unknown: the next round finds what is still due.
                logger.debug("the controller looks again: %s", error)
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            try:
                async with asyncio.timeout(self._wait_s()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def look(self) -> int:
        """Campaign if there is no controller, then write the decisions that are due. Return their number.

        Raises:
            GuardFailed, LeaseExpired, StoreUnavailable: check again.
        """
        if not self._lifecycle.may_act():
            return 0
        if not self._lifecycle.may_control():
            key = self._catalog.controller_key
            if key is None:
                await self._lifecycle.win_election()
            elif not self._lifecycle.recognise_election(key):
                return 0
            logger.info("broker %d is the controller now", self._me)
            # A new controller starts counting from zero.
            self._absences = MissingBrokers()
            self._stray_ages = StrayAges()
        view = await self._view()
        count = 0
        for write in controller_decisions.decide(view):
            level = logging.WARNING if controller_decisions.UNCLEAN in write.why else logging.INFO
            logger.log(level, "controller: %s", write.why)
            await self._catalog.write(write)
            count += 1
        if view.is_leader_check_due:
            self._leaders_checked_at_ms = self._clock.monotonic_ms()
        return count

    async def _view(self) -> ClusterView:
        view = self._known_view()
        if view.strays:
            # The watched image changes key by key and may not have the topic yet to which a stray belongs. A read of
            # the store at one revision is consistent.
            await self._catalog.read_view()
            if not self._lifecycle.may_control():
                raise LeaseExpired(
                    "no longer controller: the election key changed while the store was read"
                )
            view = self._known_view()
        return view

    def _known_view(self) -> ClusterView:
        """Return the view of the watched image, with only those strays that have existed for a while."""
        now_ms = self._clock.monotonic_ms()
        last = self._leaders_checked_at_ms
        view = self._catalog.view(
            controller_revision=self._lifecycle.controller_revision,
            now_ms=now_ms,
            settings=self._settings,
            is_leader_check_due=last is None or now_ms - last >= LEADER_CHECK_EVERY_MS,
        )
        known = [one for one, entry in view.registry.items() if not entry.is_removed]
        missing = self._absences.on_view(known=known, live=view.brokers, now_ms=now_ms)
        old = self._stray_ages.on_view(
            view.strays, now_ms=now_ms, wait_ms=self._settings.stray_after_ms
        )
        return replace(view, missing_since_ms=missing, strays=old)

    def _wait_s(self) -> float:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._absences.next_due_ms(self._settings, now_ms=now_ms)
        if due_ms is None:
            return LOOK_EVERY_S
        return min(LOOK_EVERY_S, (due_ms - now_ms) / 1000)
