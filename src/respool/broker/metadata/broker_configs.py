"""Dynamic broker configs, which clients may change through any broker.

They are written to the metadata store and take effect when a broker sees them there. They concern replication, so they
have no effect on a single broker.
"""

from collections.abc import Callable, Mapping, Sequence

from respool.broker.metadata.catalog import Catalog, retry_on_conflict
from respool.cluster import broker_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.errors import RequestTimedOut
from respool.ports.metadata_store import StoreUnavailable


class BrokerConfigs:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def change(
        self,
        name: str,
        rewrite: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace the overrides of a broker (of all brokers if `name` is empty) by the result of `rewrite`.

        Raises:
            RequestError: the change is invalid, or the store does not answer.
        """

        def decide(view: ClusterView) -> list[GuardedWrite]:
            return broker_requests.configure(view, name, rewrite)

        try:
            if validate_only:
                decide(await self._catalog.sure_view())
            else:
                await retry_on_conflict(self._catalog, decide, self._write)
        except StoreUnavailable as error:
            raise RequestTimedOut(f"the metadata store does not answer: {error}") from error

    async def _write(self, writes: Sequence[GuardedWrite]) -> None:
        for one in writes:
            await self._catalog.write(one)
