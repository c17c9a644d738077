"""The services of other servers' contracts on the orchestrator's port, as adapters of its own."""

from cosyserve.foreign import cosyvoice_pb2_grpc, riva_tts_pb2_grpc
from cosyserve.rpc.server import Service
from services.orchestrator.foreign.cosyvoice import CosyVoiceServicer
from services.orchestrator.request_log import logged
from services.orchestrator.riva.servicer import RivaServicer
from services.orchestrator.servicer import SynthesisServicer

NAMES = ("nvidia.riva.tts.RivaSpeechSynthesis", "cosyvoice.CosyVoice")


class _Riva(RivaServicer):
    log_prefix = "Riva"
    Synthesize = logged(RivaServicer.Synthesize)  # type: ignore[assignment]
    SynthesizeOnline = logged(RivaServicer.SynthesizeOnline)  # type: ignore[assignment]


class _CosyVoice(CosyVoiceServicer):
    log_prefix = "CosyVoice"
    Inference = logged(CosyVoiceServicer.Inference)  # type: ignore[assignment]


def serve_adapters(service: Service, servicer: SynthesisServicer) -> None:
    """Add the adapters of `servicer` to a service that loads."""
    riva_tts_pb2_grpc.add_RivaSpeechSynthesisServicer_to_server(_Riva(servicer), service.handlers)  # type: ignore[arg-type]
    cosyvoice_pb2_grpc.add_CosyVoiceServicer_to_server(_CosyVoice(servicer), service.handlers)  # type: ignore[arg-type]
    service.names += NAMES
