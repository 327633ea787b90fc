"""What can go wrong with a broker in a test: one class for each case. All messages say what to do."""

from respool.model.errors import RespoolError


class TestBrokerError(RespoolError):
    """A problem with a test's broker, not with the code under test."""

    # pytest would take the class for a test class because of its name.
    __test__ = False


class BrokerDidNotStart(TestBrokerError):
    """The start failed; the message has the reason and the end of the broker's log."""


class PortTaken(BrokerDidNotStart):
    """Another process listens on the requested port."""


class BrokerFailed(TestBrokerError):
    """The broker stopped by itself: a bug in Respool. The message has the end of its log."""


class BrokerUnresponsive(TestBrokerError):
    """The broker did not complete a command in time."""


class BrokerNotRunning(TestBrokerError):
    """The broker was not started, or it is stopped or crashed."""


class BrokerRunning(TestBrokerError):
    """The broker is already started: use one `with` block for each broker."""


class BrokerClosed(TestBrokerError):
    """The broker was closed, and its data was removed unless a folder was given."""


class BrokerForked(TestBrokerError):
    """This process was forked from the broker's process: it can use the broker's address, but not control it."""


class UnknownFault(TestBrokerError):
    """There is no such API or error, or the API's response has no field for the error."""


BY_NAME = {
    one.__name__: one
    for one in (
        TestBrokerError,
        BrokerDidNotStart,
        PortTaken,
        BrokerFailed,
        BrokerUnresponsive,
        BrokerNotRunning,
        UnknownFault,
    )
}
