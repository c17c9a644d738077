"""Server reflection with the comments of the contract: what `grpcurl describe` shows is what stands
in protos/.

The descriptors inside generated code have no comments, and a descriptor pool drops those of what is
added to it. So grpcio's own servicer answers, and each file of ours in its answers is replaced by
the one of `cosyserve/v1/descriptors.binpb`, which `make protos` writes with them.
"""

from collections.abc import AsyncIterator, Iterable
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
    """As grpcio's servicer, with comments where the contract has them."""

    def __init__(self, services: Iterable[str]) -> None:
        """services: full names of those that are listed."""
        self._plain: Any = reflection.aio.ReflectionServicer(services)

    async def ServerReflectionInfo(self, request_iterator: Requests, context: Any) -> Responses:
        async for response in self._plain.ServerReflectionInfo(request_iterator, context):
            if response.HasField("file_descriptor_response"):
                files_found = response.file_descriptor_response.file_descriptor_proto
                files_found[:] = [_commented(file) for file in files_found]
            yield response


def enable(services: Iterable[str], server: grpc.aio.Server) -> None:
    """Add reflection of `services`, full names, to a server that has not started."""
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(CommentedReflection(services), server)  # type: ignore[no-untyped-call]


def _commented(file: bytes) -> bytes:
    return _contract().get(descriptor_pb2.FileDescriptorProto.FromString(file).name, file)


@cache
def _contract() -> dict[str, bytes]:
    """Name of each file of the contract, such as cosyserve/v1/synthesis.proto, and its serialized
    descriptor with comments.
    """
    content = files("cosyserve.v1").joinpath(_DESCRIPTORS).read_bytes()
    return {file.name: file.SerializeToString() for file in descriptor_pb2.FileDescriptorSet.FromString(content).file}
