"""A process that parses lines of JSON with pyarrow, and may crash on them: `python -m
respool.tables.values.json_child`.

pyarrow's parser crashes its process on some input (a first record `null`, for one). Known cases never reach it, but the
input is untrusted; so it runs in a child process, where a crash costs one block of lines, which the parent then
divides.

```
request   length of the schema (4 bytes), length of the lines (8), both little-endian; an Arrow schema; the lines
answer    0 and the length (8) of an Arrow stream, and the stream; or 1 and the length of an error's text, and the text
```
"""

import io
import struct
import sys
from typing import BinaryIO

import pyarrow as pa
from pyarrow import json as arrow_json

HEADER = struct.Struct("<IQ")
ANSWER = struct.Struct("<BQ")
PARSED, FAILED = 0, 1
# Faster than a block as large as all lines.
_BLOCK_BYTES = 4 * 1024 * 1024


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        header = requests.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        schema_bytes, line_bytes = HEADER.unpack(header)
        schema = pa.ipc.read_schema(pa.BufferReader(requests.read(schema_bytes)))
        _answer(answers, schema, requests.read(line_bytes))


def _answer(answers: BinaryIO, schema: pa.Schema, lines: bytes) -> None:
    try:
        table = parse(schema, lines)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        text = str(error).encode(errors="replace")
        answers.write(ANSWER.pack(FAILED, len(text)))
        answers.write(text)
    else:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(table)
        answers.write(ANSWER.pack(PARSED, sink.tell()))
        answers.write(sink.getbuffer())
    answers.flush()


def parse(schema: pa.Schema, lines: bytes) -> pa.Table:
    longest = max(_BLOCK_BYTES, len(lines) + 1 if b"\n" not in lines[:_BLOCK_BYTES] else 0)
    table = arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=longest),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="error"
        ),
    )
    return table.select(schema.names).cast(schema)


if __name__ == "__main__":
    main()
