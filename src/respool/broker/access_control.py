"""The one place where requests are authorized: may the client of this request do this with this resource?

A change of ACLs in the metadata store is seen by the next request, on every broker: each follows the store, and one
that cannot stops serving when its lease ends. A session keeps the decisions about its client until the ACLs change.

CLUSTER_ACTION is for brokers, in every mode: a broker proves that it is one (`ClientSession.is_broker`), and no ACL and
no super user gives this to another principal.
"""

from typing import Protocol

from respool.access.authorizer import AccessDecision, Authorizer
from respool.access.principal_rules import Caller
from respool.broker.audit_trail import AuditTrail
from respool.model.broker_config import BrokerConfig
from respool.model.cluster import ClusterImage
from respool.model.coordinator_errors import TransactionalIdAuthorizationFailed
from respool.model.errors import RequestError
from respool.model.security.access_settings import AccessSettings
from respool.model.security.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    AccessMode,
    AclImage,
    AclOperation,
    AclResource,
)
from respool.model.security.principal import NO_SESSION, ClientSession
from respool.model.security.security_errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from respool.ports.metrics import Metrics
from respool.wire.codec import Request

# Decisions that a session keeps.
DECISIONS_MAX = 4_096

# Fixed texts, as in Kafka: a more specific text would reveal what exists.
_DENIED: dict[AclResource, RequestError] = {
    AclResource.TOPIC: TopicAuthorizationFailed("Topic authorization failed."),
    AclResource.GROUP: GroupAuthorizationFailed("Group authorization failed."),
    AclResource.CLUSTER: ClusterAuthorizationFailed("Cluster authorization failed."),
    AclResource.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed(
        "Transactional Id authorization failed."
    ),
    AclResource.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed(
        "Delegation Token authorization failed."
    ),
    AclResource.USER: DelegationTokenAuthorizationFailed("Delegation Token authorization failed."),
}


_NO_BROKER = AccessDecision(
    is_allowed=False, why="the client did not prove that it is a broker of this cluster"
)


class NeededRight(Protocol):
    """An operation on resources of a type: see `handlers/support/rights.py`."""

    @property
    def operation(self) -> AclOperation: ...

    @property
    def resource(self) -> AclResource: ...


class AccessControl:
    def __init__(self, settings: AccessSettings, *, audit: AuditTrail, metrics: Metrics) -> None:
        self._settings = settings
        self._audit = audit
        self.mode = AccessMode.OFF
        # True: requests of clients are authorized. A request that has waited is authorized again if `authorizer` has
        # changed.
        self.is_on = False
        self.authorizer = Authorizer()
        self._acls = AclImage()
        # Its decisions are taken from a session as they are: nothing more is to be done about what is allowed.
        self._final: Authorizer | None = None
        self._denied = {
            kind: metrics.counter(
                "respool_authorization_denied_total",
                "Operations that ACLs deny; in the mode observe they are served all the same.",
                resource=kind.name.lower(),
            )
            for kind in AclResource
        }

    def on_image(self, image: ClusterImage, config: BrokerConfig) -> None:
        """The ACLs or the mode may have changed."""
        mode = config.respool_authorization
        if mode is AccessMode.OFF:
            self.mode, self.is_on, self._final = mode, False, None
            return
        if not self.is_on or self._acls is not image.acls:
            self.authorizer = self._authorizer_of(image.acls)
            self._acls = image.acls
        elif mode is self.mode:
            return
        self.mode, self.is_on = mode, True
        self._final = None if self._settings.audit_allowed else self.authorizer

    def may(self, request: Request, right: NeededRight, name: str = CLUSTER_NAME) -> bool:
        return self.refusal(request, right, name) is None

    def refusal(
        self, request: Request, right: NeededRight, name: str = CLUSTER_NAME
    ) -> RequestError | None:
        """The error for an unauthorized client; None: it is authorized."""
        decisions = request.session.decisions
        # On the way of every batch: what was allowed to this session before costs one look-up.
        if (
            isinstance(decisions, _Decisions)
            and decisions.authorizer is self._final
            and decisions.known.get((right.operation, right.resource, name))
        ):
            return None
        if right.operation is AclOperation.CLUSTER_ACTION:
            return None if self._is_broker(request, right) else _DENIED[right.resource]
        if not self.is_on or self._may(request, right.operation, right.resource, name):
            return None
        return _DENIED[right.resource]

    def denial(self, right: NeededRight) -> RequestError:
        """The error for a client without the right."""
        return _DENIED[right.resource]

    def check(self, request: Request, right: NeededRight, name: str = CLUSTER_NAME) -> None:
        """
        Raises:
            RequestError: the client may not do this.
        """
        refusal = self.refusal(request, right, name)
        if refusal is not None:
            raise refusal

    def has(self, request: Request, right: NeededRight, name: str = CLUSTER_NAME) -> bool:
        """True if the client has the right; nothing is logged: it is one of several rights, of which one is enough."""
        session = request.session
        if right.operation is AclOperation.CLUSTER_ACTION:
            return session.is_broker
        if not self.is_on or session is NO_SESSION:
            return True
        return self._decide(session, right.operation, right.resource, name)

    def has_any(self, request: Request, right: NeededRight) -> bool:
        """True if the client has the right to some resource of the type, which need not exist."""
        session = request.session
        if not self.is_on or session is NO_SESSION:
            return True
        caller = self._decisions(session).caller
        return self.authorizer.allows_any(caller, right.operation, right.resource)

    def sees(self, request: Request, right: NeededRight, name: str = CLUSTER_NAME) -> bool:
        """True unless something is left out of the reply, because the client is not authorized. Nothing is logged."""
        return self.mode is not AccessMode.ENFORCE or self.has(request, right, name)

    def operations(
        self,
        request: Request,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        having: int | None = None,
    ) -> int:
        """The operations that the client may do with the resource, as bits (KIP-430); `having`: those that it has."""
        bits = OPERATIONS[resource] if having is None else having
        session = request.session
        if self.mode is not AccessMode.ENFORCE or session is NO_SESSION:
            return bits
        caller, authorizer = self._decisions(session).caller, self.authorizer
        return sum(
            1 << operation
            for operation in AclOperation
            if bits >> operation & 1 and authorizer.allows(caller, operation, resource, name)
        )

    def explain(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        acls: AclImage,
    ) -> AccessDecision:
        """Return the decision that would be made, whatever the mode, and the reason."""
        authorizer = self.authorizer if self._acls is acls else self._authorizer_of(acls)
        return authorizer.explain(principal, host, operation, resource, name)

    def _may(
        self, request: Request, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        session = request.session
        if session is NO_SESSION:
            return True
        if self._decide(session, operation, resource, name):
            if self._settings.audit_allowed:
                decision = self._explain(session, operation, resource, name)
                self._audit.allowed(request, operation, resource, name=name, decision=decision)
            return True
        decision = self._explain(session, operation, resource, name)
        return self._on_denied(request, operation, resource, name, decision)

    def _is_broker(self, request: Request, right: NeededRight) -> bool:
        if request.session.is_broker:
            return True
        self._denied[right.resource].inc()
        self._audit.denied(
            request,
            right.operation,
            right.resource,
            name=CLUSTER_NAME,
            decision=_NO_BROKER,
            is_enforced=True,
        )
        return False

    def _decide(
        self, session: ClientSession, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        decisions = self._decisions(session)
        key = (operation, resource, name)
        known = decisions.known.get(key)
        if known is None:
            if len(decisions.known) >= DECISIONS_MAX:
                decisions.known.clear()
            known = self.authorizer.allows(decisions.caller, operation, resource, name)
            decisions.known[key] = known
        return known

    def _decisions(self, session: ClientSession) -> "_Decisions":
        decisions = session.decisions
        if decisions is None or decisions.authorizer is not self.authorizer:
            caller = self.authorizer.caller(str(session.principal), session.host)
            decisions = session.decisions = _Decisions(self.authorizer, caller)
        assert isinstance(decisions, _Decisions)
        return decisions

    def _explain(
        self, session: ClientSession, operation: AclOperation, resource: AclResource, name: str
    ) -> AccessDecision:
        principal = str(session.principal)
        return self.authorizer.explain(principal, session.host, operation, resource, name)

    def _on_denied(
        self,
        request: Request,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        decision: AccessDecision,
    ) -> bool:
        """Return True if the request is served anyway."""
        self._denied[resource].inc()
        is_enforced = self.mode is AccessMode.ENFORCE
        self._audit.denied(
            request, operation, resource, name=name, decision=decision, is_enforced=is_enforced
        )
        return not is_enforced

    def _authorizer_of(self, acls: AclImage) -> Authorizer:
        if self.is_on:
            before = self._acls.by_pattern
            changed = [
                one
                for one in {**before, **acls.by_pattern}
                if before.get(one) is not acls.by_pattern.get(one)
            ]
            return self.authorizer.with_changes(acls, changed)
        return Authorizer(
            acls,
            super_users=self._settings.super_user_names,
            allows_without_acl=self._settings.allow_everyone_if_no_acl_found,
        )


class _Decisions:
    """The decisions about one session's client, by one authorizer."""

    __slots__ = ("authorizer", "caller", "known")

    def __init__(self, authorizer: Authorizer, caller: Caller) -> None:
        self.authorizer = authorizer
        self.caller = caller
        self.known: dict[tuple[AclOperation, AclResource, str], bool] = {}
