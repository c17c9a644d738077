"""The clients of the public endpoint; what users import is named here."""

from cosyserve.audio.encoding import CompressedEncoding, Encoding
from cosyserve.client.blocking import BlockingSpeech, BlockingStreamingSpeech, Client
from cosyserve.client.client import AsyncClient
from cosyserve.client.speech import Speech
from cosyserve.client.streaming_speech import StreamingSpeech
from cosyserve.client.types import Prompt
from cosyserve.tls.settings import ClientTls

__all__ = [
    "AsyncClient",
    "BlockingSpeech",
    "BlockingStreamingSpeech",
    "Client",
    "ClientTls",
    "CompressedEncoding",
    "Encoding",
    "Prompt",
    "Speech",
    "StreamingSpeech",
]
