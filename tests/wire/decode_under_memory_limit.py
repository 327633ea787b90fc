"""Run by a test, in a process of its own: decodes requests with monstrous counts while there is little memory to spare.

A decoder that reserves what is announced ends this process. Prints how many requests were refused.
"""

import resource
from pathlib import Path

from respool.wire.codec import decode_request
from respool.wire.protocol_errors import RequestMalformed
from respool.wire.schema_extensions import request_class
from wire.entities import SERVED, encode, header, small

SPARE_BYTES = 64 * 1024 * 1024
# Two billion items as a varint and as an int32, and just as many as would take 160 MB of pointers.
MONSTERS = (b"\x80\x80\x80\x80\x08", b"\x7f\xff\xff\xff", b"\x80\xda\xc4\x09", b"\x01\x31\x2d\x00")


def main() -> None:
    bodies = []
    for key, version in SERVED:
        head, body = header(key, version), encode(small(request_class(key, version)))
        decode_request(memoryview(head + body))
        bodies.append((head, body))
    limit_memory()
    refused = 0
    for head, body in bodies:
        for position in range(len(body)):
            for monster in MONSTERS:
                spoiled = body[:position] + monster + body[position + 1 :]
                try:
                    decode_request(memoryview(head + spoiled))
                except RequestMalformed:
                    refused += 1
    print(refused)


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
