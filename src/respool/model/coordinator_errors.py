"""Errors of the group and transaction coordinators in replies to clients; see `errors.py` for the families."""

from respool.model.errors import RequestError


class OffsetMetadataTooLarge(RequestError):
    """The string committed with an offset is longer than offset.metadata.max.bytes."""

    code = 12


class CoordinatorLoadInProgress(RequestError):
    """The coordinator is still reading its log; the client should ask again."""

    code = 14
    retriable = True


class CoordinatorNotAvailable(RequestError):
    """Nobody coordinates the group now; the client should look for its coordinator again."""

    code = 15
    retriable = True


class NotCoordinator(RequestError):
    """Another broker coordinates the group; the client should look for its coordinator again."""

    code = 16
    retriable = True


class IllegalGeneration(RequestError):
    """The group has another generation now; the member must join again."""

    code = 22


class InconsistentGroupProtocol(RequestError):
    """The member's protocols have nothing in common with the group's."""

    code = 23


class InvalidGroupId(RequestError):
    """There cannot be a group of this name."""

    code = 24


class UnknownMemberId(RequestError):
    """The group has no such member; it must join as a new one."""

    code = 25


class InvalidSessionTimeout(RequestError):
    """The session timeout is outside what the broker allows."""

    code = 26


class RebalanceInProgress(RequestError):
    """The group is rebalancing; the member must join again."""

    code = 27


class InvalidTransactionState(RequestError):
    """The batch belongs to no transaction that is open here."""

    code = 48


class InvalidProducerIdMapping(RequestError):
    """The transactional id is unknown, or another producer id stands for it now."""

    code = 49


class InvalidTransactionTimeout(RequestError):
    """The transaction timeout is not positive, or above transaction.max.timeout.ms."""

    code = 50


class ConcurrentTransactions(RequestError):
    """The transaction before is not quite over yet; the client should ask again."""

    code = 51
    retriable = True


class TransactionCoordinatorFenced(RequestError):
    """A newer coordinator has taken over from the one that sent this marker."""

    code = 52


class TransactionalIdAuthorizationFailed(RequestError):
    """The client may not use transactions under this id."""

    code = 53


class NonEmptyGroup(RequestError):
    """The group has members, so it cannot be deleted."""

    code = 68


class GroupIdNotFound(RequestError):
    """There is no group of this name."""

    code = 69


class MemberIdRequired(RequestError):
    """The member is new; it must join again with the id it is given here."""

    code = 79


class GroupMaxSizeReached(RequestError):
    """The group has as many members as group.max.size allows."""

    code = 81


class FencedInstanceId(RequestError):
    """Another member has taken this static member's place."""

    code = 82


class GroupSubscribedToTopic(RequestError):
    """The group's members read the topic, so its offsets stay."""

    code = 86


class UnstableOffsetCommit(RequestError):
    """An open transaction may still change the committed offset; the client should ask again."""

    code = 88
    retriable = True


class ProducerFenced(RequestError):
    """A newer producer has taken this transactional id over, or the transaction took too long."""

    code = 90


class TransactionalIdNotFound(RequestError):
    """There is no such transactional id."""

    code = 105


class FencedMemberEpoch(RequestError):
    """The member's epoch is not the coordinator's; the member must join again."""

    code = 110


class UnreleasedInstanceId(RequestError):
    """The static member's place is taken by one that has not left."""

    code = 111


class UnsupportedAssignor(RequestError):
    """The broker has no such assignor, or the members do not agree on one."""

    code = 112


class StaleMemberEpoch(RequestError):
    """The member's epoch is not the current one; it learns that by its next heartbeat."""

    code = 113


class TransactionAbortable(RequestError):
    """The transaction cannot continue; the client should abort it and may begin another."""

    code = 120


class InvalidRegularExpression(RequestError):
    """The pattern of topic names cannot be read, or is more work than the broker will do."""

    code = 128
