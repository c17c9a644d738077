"""Reflection answers with the contract as it is written, comments included."""

from collections.abc import AsyncIterator
from importlib import import_module

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cosyserve.rpc import reflection
from tests.stacks.up_process import ROOT
from tests.unit.cosyserve.rpc.small_service import NAME, loader, one_chunk, reached

Request = reflection_pb2.ServerReflectionRequest
FILE = "cosyserve/v1/synthesis.proto"


@pytest.fixture
async def answers() -> AsyncIterator[object]:
    async with reached(loader(one_chunk)) as channel:

        async def ask(request: Request) -> reflection_pb2.ServerReflectionResponse:
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
            (answer,) = [answer async for answer in call]
            return answer

        yield ask


def files_of(answer: reflection_pb2.ServerReflectionResponse) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    found = map(descriptor_pb2.FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
    return {file.name: file for file in found}


def comment(file: descriptor_pb2.FileDescriptorProto, *path: int) -> str:
    return next(place.leading_comments for place in file.source_code_info.location if tuple(place.path) == path)


@pytest.mark.parametrize(
    "request_", [Request(file_containing_symbol="cosyserve.v1.SynthesisService"), Request(file_by_filename=FILE)]
)
async def test_a_method_comes_with_its_comment(answers, request_: Request) -> None:  # type: ignore[no-untyped-def]
    files = files_of(await answers(request_))
    service = next(service for service in files[FILE].service if service.name == "SynthesisService")
    place = [method.name for method in service.method].index("Synthesize")
    number = list(files[FILE].service).index(service)
    assert comment(files[FILE], 6, number, 2, place).strip().startswith("Synthesizes a text")
    # What it is made of comes along, ours with comments, and what others wrote as the pool has it.
    assert files["cosyserve/v1/voice.proto"].source_code_info.location
    assert not files["google/protobuf/timestamp.proto"].source_code_info.location


async def test_what_is_not_there_and_lists_are_answered_as_before(answers) -> None:  # type: ignore[no-untyped-def]
    missing = await answers(Request(file_containing_symbol="cosyserve.v1.NoService"))
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert {NAME, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= {
        service.name for service in (await answers(Request(list_services=""))).list_services_response.service
    }


def _without_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """protoc writes the names that fields have in JSON into a set, and leaves them out of generated
    code, where they follow.
    """
    for field in (*message.field, *message.extension):
        field.ClearField("json_name")
    for nested in message.nested_type:
        _without_json_names(nested)


def test_the_descriptors_are_those_of_the_generated_code() -> None:
    """A set that was not generated with the code beside it would describe another contract than the
    one that is served.
    """
    contract = reflection._contract()
    protos = ROOT / "protos"
    assert sorted(contract) == sorted(str(path.relative_to(protos)) for path in protos.glob("cosyserve/*/*.proto"))
    for name, content in contract.items():
        import_module(name.replace("/", ".").replace(".proto", "_pb2"))
        served = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(served)
        commented = descriptor_pb2.FileDescriptorProto.FromString(content)
        assert commented.source_code_info.location
        commented.ClearField("source_code_info")
        for message in commented.message_type:
            _without_json_names(message)
        assert commented == served, name
