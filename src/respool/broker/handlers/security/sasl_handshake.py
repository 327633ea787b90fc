"""SaslHandshake (key 17): there are no logins on this listener. The connection stays open, as Kafka's does."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.without_security import NO_SASL
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.SASL_HANDSHAKE, versions=(0, 1), rights=())
def sasl_handshake(request: Request, _broker: Broker) -> Reply:
    return [encode_reply(request, {"error_code": NO_SASL.code, "mechanisms": ()})]
