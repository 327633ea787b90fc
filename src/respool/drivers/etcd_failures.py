"""What can come of a call to one etcd member, told by what is certain: done nowhere, done perhaps, refused by all.

etcd tells its errors apart by a gRPC status and a sentence; both are read here and nowhere else.
"""

from enum import Enum

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from respool.ports.metadata_store import StoreUnavailable


class Verdict(Enum):
    # Certainly nothing happened, and another member may do it.
    NOT_DONE = "not done"
    # It may have happened.
    UNKNOWN = "unknown"
    # Certainly nothing happened, and no member will do it.
    REFUSED = "refused"


class CallFailed(Exception):
    """A member did not do what it was asked; the verdict says what that means."""

    def __init__(self, reason: str, verdict: Verdict, status: Status | None = None) -> None:
        super().__init__(reason)
        self.verdict = verdict
        # What the member answered; None: it did not.
        self.status = status

    @property
    def is_about_token(self) -> bool:
        """The login is no longer good: it expired, the member restarted, or users were changed."""
        reason = str(self)
        return (
            self.status is Status.UNAUTHENTICATED
            or "auth store is old" in reason
            # Authentication was enabled after we came.
            or "user name is empty" in reason
        )

    @property
    def is_about_password(self) -> bool:
        return "invalid user ID or password" in str(self)


class EtcdRefused(StoreUnavailable):
    """etcd answers, but not to us: wrong password, missing permission, a version with known faults. Waiting does not
    help; the message says what does.
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
    """The member answered with an error."""
    reason = error.message or error.status.name
    if "learner" in reason or reason.endswith("no leader") or "too many requests" in reason:
        # All of these are said before anything is done.
        verdict = Verdict.NOT_DONE
    elif error.status in _REFUSALS:
        verdict = Verdict.REFUSED
    else:
        verdict = Verdict.UNKNOWN
    if "space exceeded" in reason:
        reason += ": its quota is used up; compact and defragment it or raise the quota, then disarm its alarm"
    return CallFailed(reason, verdict, error.status)


def refusal_to_user(failure: CallFailed, *, user: str, root: str) -> EtcdRefused | None:
    """The failure in words for the operator, where it is one that only the operator can mend."""
    reason = str(failure)
    if "user name is empty" in reason:
        return EtcdRefused("etcd wants a user: set etcd_user and etcd_password")
    if failure.is_about_password:
        return EtcdRefused(
            f"etcd does not know user {user!r} with this password: check etcd_user and etcd_password"
        )
    if failure.status is Status.PERMISSION_DENIED or "permission denied" in reason:
        return EtcdRefused(
            f"etcd does not let user {user!r} use the keys under {root}: give it a role that may read and write there"
        )
    return None
