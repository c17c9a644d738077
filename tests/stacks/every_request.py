"""Requests to every method of the services with a caller's text in every field that takes one, read
off the protobuf descriptors: a field that is added is covered by itself."""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

Put = Callable[[Any], None]
"""Writes one field of a message."""


def methods(services: list[ServiceDescriptor]) -> list[MethodDescriptor]:
    return [method for service in services for method in service.methods]


def request_of(method: MethodDescriptor) -> Any:
    """The class of its request messages."""
    return message_factory.GetMessageClass(method.input_type)


def places(kind: Any, text: str, path: str = "") -> Iterator[tuple[str, Put]]:
    """Every field of a message type that takes a text or bytes, at any depth, keys and values of
    maps too.
    """
    for field in kind.fields:
        name = f"{path}{field.name}"
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
            yield from _of_map(field, name, text)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner, put in places(field.message_type, text, f"{name}."):
                yield inner, _inside(field, put)
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield name, _value(field, text)


def _of_map(field: FieldDescriptor, name: str, text: str) -> Iterator[tuple[str, Put]]:
    def put(key: str, value: str) -> Put:
        return lambda message: getattr(message, field.name).update({key: value})

    yield f"{name}.key", put(text, "spoken")
    yield f"{name}.value", put("written", text)


def _inside(field: FieldDescriptor, put: Put) -> Put:
    def write(message: Message) -> None:
        value = getattr(message, field.name)
        put(value.add() if field.is_repeated else value)

    return write


def _value(field: FieldDescriptor, text: str) -> Put:
    value: Any = text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text

    def write(message: Message) -> None:
        if field.is_repeated:
            getattr(message, field.name).append(value)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            # Behind what is there, so that a sound file may stay one.
            setattr(message, field.name, getattr(message, field.name) + value)
        else:
            setattr(message, field.name, value)

    return write
