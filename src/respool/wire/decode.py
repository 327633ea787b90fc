"""Request bytes -> kio entities, safe against whoever sends them: walked first, then read by kio."""

import struct
from functools import cache

from kio.serial import entity_reader
from kio.serial.errors import SerialError

from respool.wire.errors import RequestMalformed
from respool.wire.schema import Entity, EntityClass
from respool.wire.walk import Walk, walker_of


class EntityDecoder:
    """Reads one kio class."""

    __slots__ = ("_entity_class", "_read", "_walk_over")

    def __init__(self, entity_class: EntityClass) -> None:
        self._entity_class = entity_class
        self._walk_over = walker_of(entity_class).walk_over
        self._read = entity_reader(entity_class)

    def decode(self, frame: memoryview, position: int) -> Entity:
        """Read the entity that starts at the position. What follows it is left alone.

        Raises:
            RequestMalformed: the bytes are not such an entity.
        """
        try:
            return self._decode(frame, position)
        except (IndexError, struct.error):
            problem = f"its {len(frame)} bytes end in the middle of a field"
        # The walk says ValueError, and so does kio of booleans and times; SerialError of the rest.
        except (SerialError, ValueError) as error:
            problem = str(error)
        raise RequestMalformed(f"not a {self._entity_class.__name__}: {problem}")

    def _decode(self, frame: memoryview, position: int) -> Entity:
        walk = Walk()
        end = self._walk_over(frame, position, walk)
        if end > len(frame):
            raise IndexError(end)
        if walk.rewrites:
            entity, _ = self._read(walk.without_unknown_tags(frame, position, end), 0)
        else:
            entity, _ = self._read(frame, position)
        return entity


@cache
def decoder_of(entity_class: EntityClass) -> EntityDecoder:
    return EntityDecoder(entity_class)
