"""What a plan of rides can be refused for."""

from respool.model.errors import RespoolError


class BadPlan(RespoolError, ValueError):
    """These rides cannot be made; the message names the argument, and says what would be right."""
