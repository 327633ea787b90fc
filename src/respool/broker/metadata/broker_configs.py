"""Dynamic configuration of brokers and groups, which clients may change through any broker.

It is written to the metadata store, and takes effect when a broker sees it there.
"""

from collections.abc import Callable, Mapping, Sequence

from respool.broker.metadata.catalog import Catalog, Decide, retry_on_conflict
from respool.cluster import broker_requests
from respool.cluster.group_config_requests import configure_group
from respool.cluster.guarded_write import GuardedWrite
from respool.model.errors import RequestTimedOut
from respool.ports.metadata_store import StoreUnavailable

Rewrite = Callable[[Mapping[str, str]], Mapping[str, str]]


class BrokerConfigs:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def change(self, name: str, rewrite: Rewrite, *, validate_only: bool = False) -> None:
        """Replace the overrides of a broker (of all brokers if `name` is empty) by the result of `rewrite`.

        Raises:
            RequestError: the change is invalid, or the store does not answer.
        """
        settings = self._catalog.settings
        await self._decide_and_write(
            lambda view: broker_requests.configure(
                view,
                name,
                rewrite,
                defaults=settings.topic_defaults,
                super_users=settings.access.super_user_names,
            ),
            validate_only=validate_only,
        )

    async def change_group(
        self, group_id: str, rewrite: Rewrite, *, validate_only: bool = False
    ) -> None:
        """Replace the overrides of a group by the result of `rewrite`. Otherwise like `change`."""
        settings = self._catalog.settings
        await self._decide_and_write(
            lambda view: configure_group(
                view, group_id, rewrite, settings=settings.groups, shares=settings.shares
            ),
            validate_only=validate_only,
        )

    async def _decide_and_write(self, decide: Decide, *, validate_only: bool) -> None:
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
