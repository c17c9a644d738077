"""Server reflection with the comments of the protos, so that `grpcurl describe` shows them.

The descriptors in generated code have no comments, and a descriptor pool drops the comments of
added files. So the servicer of grpcio answers, and each of our files in its answers is replaced by
that of `cosyserve/v1/descriptors.binpb`, which `make protos` writes with comments.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import grpc
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

SERVICE_NAME: str = reflection.SERVICE_NAME
_DESCRIPTORS = "descriptors.binpb"
Requests = AsyncIterator[reflection_pb2.ServerReflectionRequest]
Responses = AsyncIterator[reflection_pb2.ServerReflectionResponse]


class CommentedReflection(reflection_pb2_grpc.ServerReflectionServicer):
    """As the servicer of grpcio, with the comments of the contract."""

    def __init__(self, services: Callable[[], Iterable[str]]) -> None:
        """services: returns the full names of the listed services."""
        self._services = services

    async def ServerReflectionInfo(self, request_iterator: Requests, context: Any) -> Responses:
        plain: Any = reflection.aio.ReflectionServicer(self._services())
        async for response in plain.ServerReflectionInfo(request_iterator, context):
            if response.HasField("file_descriptor_response"):
                descriptors = response.file_descriptor_response.file_descriptor_proto
                descriptors[:] = [
                    _contract().get(descriptor_pb2.FileDescriptorProto.FromString(file).name, file)
                    for file in descriptors
                ]
            yield response


def enable(services: Callable[[], Iterable[str]], server: grpc.aio.Server) -> None:
    """Add reflection of `services`, which returns full names, to a server that has not started."""
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(CommentedReflection(services), server)  # type: ignore[no-untyped-call]


@cache
def _contract() -> dict[str, bytes]:
    """Serialized descriptor with comments of each file of the contract, by name such as
    cosyserve/v1/synthesis.proto.
    """
    content = files("cosyserve.v1").joinpath(_DESCRIPTORS).read_bytes()
    return {file.name: file.SerializeToString() for file in descriptor_pb2.FileDescriptorSet.FromString(content).file}
