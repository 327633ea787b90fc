"""Users with rights that come and go in a simulated run: nobody acts on a right a lease after it went."""

from collections.abc import Mapping
from typing import Any

from respool.model.ids import BrokerId
from respool.sim.checks.checker import FinalReads
from respool.sim.checks.history import History
from respool.sim.clients.access_lives import GUARDED, UserLives
from respool.sim.clients.secured_user import SecuredUser, Stranger
from respool.sim.clients.sim_client import SimClient
from respool.sim.clients.workload import WorkloadFactory
from respool.sim.machine import Machine
from respool.sim.runtime.simulated_sources import rng_of
from respool.sim.sim_plan import SimPlan

# The listener on which users log in; that of the other clients lets everybody in as a super user.
USERS_LISTENER = "users"
USERS_PORT = 9093
# Beyond the lease: the drift of clocks, the change on its way to the broker, a request on its way.
GRACE_S = 1.0


def secured_settings(number: int) -> dict[str, Any]:
    """The settings of a broker with users."""
    return {
        "authorization": "enforce",
        "super_users": "User:ANONYMOUS",
        "connection_failed_authentication_delay_ms": 10,
        "listener": {
            USERS_LISTENER: {
                "listen": f"127.0.0.{number}:{USERS_PORT}",
                "protocol": "SASL_PLAINTEXT",
                "sasl_enabled_mechanisms": "SCRAM-SHA-256",
            }
        },
    }


class AccessScenario:
    def __init__(
        self, seed: int, *, plan: SimPlan, machines: list[Machine], history: History
    ) -> None:
        self._rng = rng_of("users", seed)
        self._plan = plan
        self._machines = machines
        self._history = history

    def topics(self) -> Mapping[str, tuple[int, Mapping[str, str]]]:
        return {GUARDED: (1, {})}

    def start(self, factory: WorkloadFactory) -> list[SimClient]:
        lease_s = self._plan.session_ttl_ms / 1_000 if self._plan.is_cluster else 0.0
        lives = factory.new_client(UserLives, "administrator", grace_s=lease_s * 1.1 + GRACE_S)
        brokers = self._users_addresses()
        users: list[SimClient] = [
            factory.new_client(
                SecuredUser, f"user-{number}", lives=lives, is_reader=number == 0, brokers=brokers
            )
            for number in range(self._rng.randint(2, 3))
        ]
        stranger = factory.new_client(Stranger, "stranger", brokers=brokers)
        return [lives, *users, stranger]

    async def finish(self, factory: WorkloadFactory, final: FinalReads) -> None:
        """Every check is made as clients go along."""

    def _users_addresses(self) -> dict[BrokerId, tuple[str, int]]:
        return {one.id: (one.address[0], USERS_PORT) for one in self._machines}
