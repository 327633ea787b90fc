"""ACLs and quotas that clients create, change and delete, through any broker.

They are written to the metadata store, and take effect when a broker sees them there. If the store does not answer, it
is unknown whether a change is in; the client may look, or ask again: a repeated change succeeds.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from respool.broker.metadata.catalog import Catalog, retry_on_conflict
from respool.cluster.access.acl_requests import create_acls, delete_acls
from respool.cluster.access.quota_requests import QuotaChange, alter_quotas
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.errors import RequestError, RequestTimedOut
from respool.model.security.access_settings import AccessSettings
from respool.model.security.acl import AccessMode, AclBinding, AclFilter
from respool.ports.metadata_store import StoreUnavailable

Result = TypeVar("Result")


class AccessModes(Protocol):
    @property
    def mode(self) -> AccessMode: ...


class AccessChanges:
    def __init__(self, catalog: Catalog, settings: AccessSettings, access: AccessModes) -> None:
        self._catalog = catalog
        self._settings = settings
        self._access = access

    async def create(self, asked: Sequence[AclBinding | RequestError]) -> list[RequestError | None]:
        """Return what became of each. `asked` has an error in the place of what is no ACL.

        Raises:
            RequestTimedOut: it is unknown which of them exist.
        """
        return await self._change(
            lambda view: create_acls(
                view, asked, acls_max=self._settings.acls_max, keeps_alter=self._keeps_alter
            )
        )

    async def delete(
        self, filters: Sequence[AclFilter | RequestError]
    ) -> list[list[AclBinding] | RequestError]:
        """Return the ACLs that each filter deleted.

        Raises:
            RequestTimedOut: it is unknown which of them exist.
        """
        # Some writes may have succeeded when another one conflicts, and is decided again.
        found: list[dict[AclBinding, None]] = [{} for _ in filters]

        def decide(
            view: ClusterView,
        ) -> tuple[list[list[AclBinding] | RequestError], list[GuardedWrite]]:
            results, writes = delete_acls(view, filters, keeps_alter=self._keeps_alter)
            for known, result in zip(found, results, strict=True):
                if not isinstance(result, RequestError):
                    known.update(dict.fromkeys(result))
            return results, writes

        last = await self._change(decide)
        return [
            result if isinstance(result, RequestError) else list(known)
            for known, result in zip(found, last, strict=True)
        ]

    async def alter_quotas(
        self, changes: Sequence[QuotaChange | RequestError], *, validate_only: bool
    ) -> list[RequestError | None]:
        """Return what became of each.

        Raises:
            RequestTimedOut: it is unknown which of them are in.
        """

        def decide(view: ClusterView) -> tuple[list[RequestError | None], list[GuardedWrite]]:
            results, writes = alter_quotas(
                view, changes, entities_max=self._settings.quota_entities_max
            )
            return results, [] if validate_only else writes

        return await self._change(decide)

    @property
    def _keeps_alter(self) -> bool:
        """Super users may change ACLs whatever these say, and while none are enforced everybody may."""
        return self._access.mode is AccessMode.ENFORCE and not self._settings.super_user_names

    async def _change(
        self, decide: Callable[[ClusterView], tuple[list[Result], list[GuardedWrite]]]
    ) -> list[Result]:
        results: list[Result] = []

        def writes_of(view: ClusterView) -> list[GuardedWrite]:
            nonlocal results
            results, writes = decide(view)
            return writes

        try:
            await retry_on_conflict(self._catalog, writes_of, self._write)
        except StoreUnavailable as error:
            raise RequestTimedOut(f"the metadata store does not answer: {error}") from error
        return results

    async def _write(self, writes: Sequence[GuardedWrite]) -> None:
        for one in writes:
            await self._catalog.write(one)
