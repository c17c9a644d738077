"""CosyVoice's own gRPC as the client of its repository calls it: one stub, four kinds of requests,
samples without a header in both directions. The stub is generated from the names, numbers and types
of its published proto.
"""

import argparse
import importlib
import json
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import grpc
from calls import Calls, Refused
from grpc_tools import protoc

PROTO = """
syntax = "proto3";
package cosyvoice;
service CosyVoice { rpc Inference(Request) returns (stream Response) {} }
message Request { oneof RequestPayload {
  sftRequest sft_request = 1; zeroshotRequest zero_shot_request = 2;
  crosslingualRequest cross_lingual_request = 3; instructRequest instruct_request = 4; } }
message sftRequest { string spk_id = 1; string tts_text = 2; }
message zeroshotRequest { string tts_text = 1; string prompt_text = 2; bytes prompt_audio = 3; }
message crosslingualRequest { string tts_text = 1; bytes prompt_audio = 2; }
message instructRequest { string tts_text = 1; string spk_id = 2; string instruct_text = 3; }
message Response { bytes tts_audio = 1; }
"""
TEXT = "It works."
TRANSCRIPT = "This is what my voice sounds like when I read a sentence of some length."
RATE, PROMPT_RATE = 24_000, 16_000
SECONDS = 120


def generated() -> tuple[Any, Any]:
    """The messages, and the stub."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cosyvoice.proto").write_text(PROTO)
        told = ["", f"-I{folder}", f"--python_out={folder}", f"--grpc_python_out={folder}", "cosyvoice.proto"]
        assert protoc.main(told) == 0
        sys.path.insert(0, folder)
        messages, stubs = importlib.import_module("cosyvoice_pb2"), importlib.import_module("cosyvoice_pb2_grpc")
        sys.path.remove(folder)
    return messages, stubs


def by_http(url: str, text: str, **fields: Any) -> bytes:
    """The samples of our own service."""
    body = {"input": text, "response_format": "pcm", **fields}
    request = urllib.request.Request(
        f"{url}/v1/audio/speech", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        audio: bytes = response.read()
        return audio


def samples(call: Any) -> bytes:
    """As CosyVoice's client joins them."""
    audio = b"".join(response.tts_audio for response in call)
    assert len(audio) % 2 == 0
    assert len(audio) > RATE // 2, "less than a quarter of a second"
    return audio


def length(audio: bytes) -> str:
    return f"{len(audio) / 2 / RATE:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("grpc", help="host:port of the orchestrator")
    parser.add_argument("http", help="of the gateway, such as http://127.0.0.1:8080")
    arguments = parser.parse_args()
    pb, stubs = generated()
    calls = Calls("CosyVoice, its client's calls", "proto of 2026-03")
    recording = by_http(arguments.http, TRANSCRIPT, sample_rate=PROMPT_RATE)
    with grpc.insecure_channel(arguments.grpc) as channel:
        inference = stubs.CosyVoiceStub(channel).Inference
        with calls.tried("sft: the samples of our own service for its seed") as found:
            call = inference(pb.Request(sft_request=pb.sftRequest(spk_id="中文女", tts_text=TEXT)))
            audio = samples(call)
            metadata = dict(call.trailing_metadata())
            assert audio == by_http(arguments.http, TEXT, seed=int(metadata["x-seed"]), voice=metadata["x-voice"])
            found.append(length(audio))
        with calls.tried("zero_shot") as found:
            told = pb.zeroshotRequest(tts_text=TEXT, prompt_text=TRANSCRIPT, prompt_audio=recording)
            found.append(length(samples(inference(pb.Request(zero_shot_request=told)))))
        with calls.tried("cross_lingual") as found:
            told = pb.crosslingualRequest(tts_text=TEXT, prompt_audio=recording)
            found.append(length(samples(inference(pb.Request(cross_lingual_request=told)))))
        with calls.tried("instruct") as found:
            # A model that follows no instructions has to say so.
            told = pb.instructRequest(tts_text=TEXT, spk_id="", instruct_text="Speak slowly.<|endofprompt|>")
            call = inference(pb.Request(instruct_request=told))
            if call.code() is grpc.StatusCode.FAILED_PRECONDITION:
                found.append("refused, because the model follows no instructions")
            else:
                found.append(length(samples(call)))
        with calls.tried("cancelled"):
            call = inference(pb.Request(sft_request=pb.sftRequest(tts_text=" ".join([TRANSCRIPT] * 20))))
            assert next(call).tts_audio
            call.cancel()
        wrong = (
            ("an unknown speaker", pb.Request(sft_request=pb.sftRequest(spk_id="nobody", tts_text=TEXT)), "NOT_FOUND"),
            ("an empty request", pb.Request(), "INVALID_ARGUMENT"),
        )
        for what, request, code in wrong:
            with calls.tried(f"{what}: {code}"), Refused(grpc.RpcError) as refused:
                list(inference(request))
            assert refused.error.code().name == code
    calls.end()


if __name__ == "__main__":
    main()
