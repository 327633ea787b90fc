"""Which topics of a fetch its client may not read. Authorized when the fetch begins, and again before its answer."""

from collections.abc import Iterable, Mapping

from respool.broker.access_control import AccessControl, NeededRight
from respool.broker.fetch.sessions import FetchTarget, TopicRef
from respool.broker.metadata.catalog import Catalog
from respool.model.errors import RequestError
from respool.model.ids import TopicId
from respool.wire.codec import Request

NOTHING_REFUSED: Mapping[TopicRef, RequestError] = {}


class FetchRights:
    """Decided on the event loop: partitions are read in other threads, too, which see only `refused`."""

    def __init__(
        self,
        request: Request,
        access: AccessControl,
        catalog: Catalog,
        targets: Iterable[FetchTarget],
        *,
        read: NeededRight,
        replicate: NeededRight | None,
    ) -> None:
        """`read` is needed for each topic; `replicate` instead of it, if a replica fetches."""
        self._request = request
        self._access = access
        self._catalog = catalog
        self._topics = tuple(dict.fromkeys(target.topic for target in targets))
        self._read = read
        self._replicate = replicate
        self.refused = self.now()

    def now(self) -> Mapping[TopicRef, RequestError]:
        """The refused topics, as the rights are now."""
        access, request = self._access, self._request
        if not access.is_on:
            return NOTHING_REFUSED
        if self._replicate is not None:
            refusal = access.refusal(request, self._replicate)
            if refusal is None:
                return NOTHING_REFUSED
            # A consumer that claims to be a replica gets the code of a topic that it may not read, as in Kafka.
            return {
                ref: access.denial(self._read)
                for ref in self._topics
                if self._name(ref) is not None
            }
        refused: dict[TopicRef, RequestError] = {}
        for ref in self._topics:
            name = self._name(ref)
            # Ids are not secret: whether one exists may be seen in the reply.
            refusal = None if name is None else access.refusal(request, self._read, name)
            if refusal is not None:
                refused[ref] = refusal
        return refused

    def _name(self, ref: TopicRef) -> str | None:
        if isinstance(ref, str):
            return ref
        topic = self._catalog.image.readable_by_id(TopicId(ref))
        return None if topic is None else topic.name
