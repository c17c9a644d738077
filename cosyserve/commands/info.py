"""`cosyserve info`: which engines serve and why; with `--warm-up` it starts a warm-up run first."""

import argparse
import sys
from typing import cast

import grpc
from google.protobuf.json_format import MessageToDict

from cosyserve.commands.terminal.arguments import add_json, add_server
from cosyserve.commands.terminal.connection_arguments import api_key, client_tls
from cosyserve.commands.terminal.output import number, print_json
from cosyserve.keys.secret import metadata_of
from cosyserve.rpc.calls import as_error
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.rpc.transport import channel_options, connect
from cosyserve.v1 import info_pb2, info_pb2_grpc

HELP = "say which engines serve, which were skipped and why"
_SECONDS = 10.0
_WARM_UP_SECONDS = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument("--warm-up", action="store_true", help="have every stage run once what a request runs, first")
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Any service can be queried; the orchestrator adds its stages."""
    caller = metadata_of(api_key(arguments))
    async with open_channel(arguments.server, channel_options(), client_tls(arguments)) as channel:
        stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel))
        await connect(channel, arguments.server)
        try:
            if arguments.warm_up:
                warm = await stub.WarmUp(info_pb2.WarmUpRequest(), timeout=_WARM_UP_SECONDS, metadata=caller)
                print(f"warm after {warm.milliseconds:.0f} ms", file=sys.stderr)
            output = await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=_SECONDS, metadata=caller)
        except grpc.aio.AioRpcError as error:
            raise as_error(error, f"info at {arguments.server}") from error
    if arguments.json:
        print_json(MessageToDict(output, preserving_proto_field_name=True))
        return 0
    print("\n\n".join(lines(one) for one in (output.info, *output.stages)))
    for silent in output.silent_stages:
        print(f"\n{silent}")
    return 0


def lines(info: info_pb2.ServiceInfo) -> str:
    """A service in readable form."""
    output = [f"{info.service} {info.version}, {'ready' if info.ready else 'loading'}, up {info.uptime_seconds:.0f} s"]
    if info.HasField("identity"):
        engine = info.identity
        output += [
            f"  engine     {info.rung}: {engine.backend}, {engine.precision}",
            f"  device     {engine.device}",
            f"  model      {engine.model_hash}",
        ]
    if info.HasField("load"):
        late = f", {info.load.late_pieces} of {info.load.pieces} pieces late" if info.load.pieces else ""
        output.append(f"  load       {info.load.real_time_factor:.3f} s of work for a second of speech{late}")
    if info.admitted_streams:
        output.append(f"  admitted   {info.admitted_streams} requests at once, {info.active_streams} under way")
    output += [f"  not {one.rung}: {one.reason}" for one in info.refused_rungs]
    if info.buckets:
        output.append(f"  buckets    {', '.join(map(str, info.buckets))}")
    for title, values in (("limits", info.limits), ("libraries", info.libraries)):
        if values:
            shown = (
                f"{name} {number(value) if isinstance(value, float) else value}"
                for name, value in sorted(values.items())
            )
            output.append(f"  {title:<10} {', '.join(shown)}")
    return "\n".join(output)
