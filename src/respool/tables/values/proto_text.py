"""The text of a .proto file as a descriptor, as far as messages need it: no services, options or extensions.

Registries return schemas as text, and few machines have the protobuf compiler.
"""

import re
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from respool.tables.errors import SchemaInvalid

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\.?[A-Za-z_][\w.]*)|(-?\d[\w.]*)|(.)""",
    re.DOTALL,
)
_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_SKIPPED = ("option", "reserved", "extensions")
_DEPTH_MAX = 32


def parse_proto(name: str, text: str) -> FileDescriptorProto:
    """
    Raises:
        SchemaInvalid: the text is malformed, or has something that is not supported; the message names it.
    """
    return _ProtoParser(name, text).file()


class _ProtoParser:
    def __init__(self, name: str, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._file = FileDescriptorProto(name=name, syntax="proto2")

    def file(self) -> FileDescriptorProto:
        while self._at < len(self._tokens):
            word = self._next()
            match word:
                case "syntax":
                    self._take("=")
                    self._file.syntax = self._text()
                    self._take(";")
                case "package":
                    self._file.package = self._next()
                    self._take(";")
                case "import":
                    if self._peek() in {"public", "weak"}:
                        self._next()
                    self._file.dependency.append(self._text())
                    self._take(";")
                case "message":
                    self._message(self._file.message_type.add(), 1)
                case "enum":
                    self._enum(self._file.enum_type.add())
                case "service" | "extend":
                    self._next()
                    self._skip_block()
                case ";":
                    continue
                case _ if word in _SKIPPED:
                    self._skip_statement()
                case _:
                    raise self._unexpected(word)
        return self._file

    def _message(self, message: DescriptorProto, depth: int) -> None:  # noqa: PLR0912 - a case for each word
        if depth > _DEPTH_MAX:
            raise SchemaInvalid(f"messages are nested more than {_DEPTH_MAX} deep")
        message.name = self._next()
        self._take("{")
        while (word := self._next()) != "}":
            match word:
                case "message":
                    self._message(message.nested_type.add(), depth + 1)
                case "enum":
                    self._enum(message.enum_type.add())
                case "oneof":
                    self._oneof(message)
                case "map":
                    self._map(message)
                case "extend":
                    self._next()
                    self._skip_block()
                case ";":
                    continue
                case "group":
                    raise SchemaInvalid("groups of Protobuf are not supported")
                case _ if word in _SKIPPED and self._peek() != "=":
                    self._skip_statement()
                case _:
                    self._field(message, word)
        for field in message.field:
            if field.proto3_optional:
                # As the compiler does, after the others: a oneof of its own tells absent from zero.
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _field(self, message: DescriptorProto, word: str, oneof: int | None = None) -> None:
        field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
        if word in _LABELS:
            field.label = _LABELS[word]
            if word == "optional" and self._file.syntax == "proto3":
                field.proto3_optional = True
            word = self._next()
        self._set_type(field, word)
        field.name = self._next()
        self._take("=")
        field.number = self._number()
        self._skip_options()
        self._take(";")
        if oneof is not None:
            field.oneof_index = oneof

    def _set_type(self, field: FieldDescriptorProto, word: str) -> None:
        if word in _SCALARS:
            field.type = _SCALARS[word]
        else:
            # Message or enum: the pool finds out.
            field.type_name = word

    def _oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._take("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip_statement()
            else:
                self._field(message, word, index)

    def _map(self, message: DescriptorProto) -> None:
        self._take("<")
        key = self._next()
        self._take(",")
        value = self._next()
        self._take(">")
        name = self._next()
        self._take("=")
        entry = message.nested_type.add(name=_entry_name(name))
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            field = entry.field.add(
                name=part, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
            )
            self._set_type(field, kind)
        message.field.add(
            name=name,
            number=self._number(),
            label=FieldDescriptorProto.LABEL_REPEATED,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=entry.name,
        )
        self._skip_options()
        self._take(";")

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._take("{")
        while (word := self._next()) != "}":
            if word in {"option", "reserved"} and self._peek() != "=":
                if word == "option" and self._peek() == "allow_alias":
                    enum.options.allow_alias = True
                self._skip_statement()
            elif word != ";":
                self._take("=")
                enum.value.add(name=word, number=self._number())
                self._skip_options()
                self._take(";")

    # -- words

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise SchemaInvalid("the Protobuf schema ends in the middle of a declaration")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, wanted: str) -> None:
        word = self._next()
        if word != wanted:
            raise SchemaInvalid(f"the Protobuf schema has {word[:60]!r} where {wanted!r} should be")

    def _text(self) -> str:
        return self._next().strip("\"'")

    def _number(self) -> int:
        word = self._next()
        try:
            return int(word, 0)
        except ValueError:
            raise SchemaInvalid(
                f"the Protobuf schema has {word[:60]!r} where a number should be"
            ) from None

    def _skip_statement(self) -> None:
        depth = 0
        while True:
            word = self._next()
            depth += (word == "{") - (word == "}")
            if word == ";" and depth == 0:
                return

    def _skip_options(self) -> None:
        if self._peek() == "[":
            while self._next() != "]":
                pass

    def _skip_block(self) -> None:
        self._take("{")
        depth = 1
        while depth:
            word = self._next()
            depth += (word == "{") - (word == "}")

    @staticmethod
    def _unexpected(word: str) -> SchemaInvalid:
        return SchemaInvalid(f"the Protobuf schema has {word[:60]!r} where a declaration should be")


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        found = match.group(1) or match.group(2) or match.group(3) or match.group(4)
        if found:
            yield found


def _entry_name(field: str) -> str:
    return "".join(part.capitalize() for part in field.split("_")) + "Entry"
