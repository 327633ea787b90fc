"""Classifies failed etcd calls by what is certain: not executed, possibly executed, rejected.

etcd distinguishes errors by a gRPC status and a sentence; both are evaluated only here.
"""

from enum import Enum

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from respool.ports.metadata_store import StoreUnavailable


class FailureKind(Enum):
    # Certainly not executed; another member may succeed.
    NOT_DONE = "not done"
    # Possibly executed.
    UNKNOWN = "unknown"
    # Certainly not executed; every member will reject it.
    REFUSED = "refused"


class CallFailed(Exception):
    """A call to a member failed; `kind` says what is certain."""

    def __init__(self, reason: str, kind: FailureKind, status: Status | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        # The status that the member returned; None: it returned none.
        self.status = status

    @property
    def is_about_token(self) -> bool:
        """The login is invalid: it expired, the member restarted, or users were changed."""
        reason = str(self)
        return (
            self.status is Status.UNAUTHENTICATED
            or "auth store is old" in reason
            # Authentication was enabled after we connected.
            or "user name is empty" in reason
        )

    @property
    def is_about_password(self) -> bool:
        return "invalid user ID or password" in str(self)


class EtcdRefused(StoreUnavailable):
    """etcd rejects this client: wrong password, missing permission, or a version with known faults. Retrying does
    not help; the message says what does.
    """


_REFUSALS = {
    Status.INVALID_ARGUMENT,
    Status.NOT_FOUND,
    Status.ALREADY_EXISTS,
    Status.PERMISSION_DENIED,
    Status.FAILED_PRECONDITION,
    Status.OUT_OF_RANGE,
    Status.UNIMPLEMENTED,
    Status.UNAUTHENTICATED,
    Status.RESOURCE_EXHAUSTED,
}


def answered(error: GRPCError) -> CallFailed:
    """The failure for an error that a member returned."""
    reason = error.message or error.status.name
    if "learner" in reason or reason.endswith("no leader") or "too many requests" in reason:
        # These are returned before anything is executed.
        kind = FailureKind.NOT_DONE
    elif error.status in _REFUSALS:
        kind = FailureKind.REFUSED
    else:
        kind = FailureKind.UNKNOWN
    if "space exceeded" in reason:
        reason += ": its quota is used up; compact and defragment it or raise the quota, then disarm its alarm"
    return CallFailed(reason, kind, error.status)


def refusal_for_operator(failure: CallFailed, *, user: str, root: str) -> EtcdRefused | None:
    """The failure as a message for the operator, if only the operator can fix it."""
    reason = str(failure)
    if "user name is empty" in reason:
        return EtcdRefused("etcd requires a user: set etcd_user and etcd_password")
    if failure.is_about_password:
        return EtcdRefused(
            f"etcd does not know user {user!r} with this password: check etcd_user and etcd_password"
        )
    if failure.status is Status.PERMISSION_DENIED or "permission denied" in reason:
        return EtcdRefused(
            f"etcd does not let user {user!r} use the keys under {root}: give it a role that may read and write there"
        )
    return None
