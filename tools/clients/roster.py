"""Which script tries which foreign client, and the packages that it needs: the versions with which
the table of compatibility was made.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Environment:
    """packages: of PyPI, or of npm for a script in JavaScript; with their versions."""

    name: str
    packages: tuple[str, ...]
    npm: bool = False


@dataclass(frozen=True)
class Script:
    """path: below the root of the repository. over: which addresses of the server it takes, in this
    order, as fields of `server.Server`. environment: None for programs of the machine, tried from
    a plain Python. files: of an example, which reads COSYSERVE_URL and reports nothing: what it
    writes has to be sound.
    """

    path: str
    environment: Environment | None = None
    files: tuple[str, ...] = ()
    over: tuple[str, ...] = ("http",)

    @property
    def name(self) -> str:
        """Of the file."""
        return self.file.name

    @property
    def file(self) -> Path:
        return ROOT / self.path

    @property
    def is_there(self) -> bool:
        return self.file.is_file()


OPENAI = Environment("openai", ("openai==3.54.0",))
OPENAI_JAVASCRIPT = Environment("openai-javascript", ("openai@7.57.0",), npm=True)
LIVEKIT = Environment(
    "livekit", ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9", "livekit-plugins-elevenlabs==1.8.9")
)
# It asks for a protobuf below 7.
PIPECAT = Environment("pipecat", ("pipecat-ai[openai,elevenlabs,nvidia]==1.14.0",))
ELEVENLABS = Environment("elevenlabs", ("elevenlabs==2.78.0",))
WEBSOCKETS = Environment("websockets", ("websockets==17.4",))
REQUESTS = Environment("requests", ("requests==2.34.2",))
WYOMING = Environment("wyoming", ("wyoming==1.10.2",))
RIVA = Environment("riva", ("nvidia-riva-client==2.28.0",))
# The last ones that send one request and no stream of them.
RIVA_OF_ONE_REQUEST = Environment("riva-2.24", ("nvidia-riva-client==2.24.0",))
GRPC = Environment("grpc", ("grpcio==1.85.1", "grpcio-tools==1.85.1", "protobuf==7.36.2"))

CLIENTS = (
    Script("tests/clients/curl_calls.py"),
    Script("tests/clients/stream_websocket.py", WEBSOCKETS),
    Script("tests/clients/openai_sdk.py", OPENAI),
    Script("tests/clients/openai_sdk.mjs", OPENAI_JAVASCRIPT),
    Script("tests/clients/livekit_openai.py", LIVEKIT),
    Script("tests/clients/pipecat_openai.py", PIPECAT),
    Script("tests/clients/elevenlabs_sdk.py", ELEVENLABS),
    Script("tests/clients/livekit_elevenlabs.py", LIVEKIT),
    Script("tests/clients/pipecat_elevenlabs.py", PIPECAT),
    Script("tests/clients/cosyvoice_http.py", REQUESTS),
    Script("tests/clients/vllm_omni_websocket.py", WEBSOCKETS),
    Script("tests/clients/wyoming_client.py", WYOMING, over=("wyoming", "http")),
    Script("tests/clients/jambonz_scripted.py", WEBSOCKETS),
    Script("tests/clients/over_grpc/riva_client.py", RIVA_OF_ONE_REQUEST, over=("grpc", "http", "guarded")),
    Script("tests/clients/over_grpc/riva_client.py", RIVA, over=("grpc", "http", "guarded")),
    Script("tests/clients/over_grpc/pipecat_nvidia.py", PIPECAT, over=("grpc",)),
    Script("tests/clients/over_grpc/cosyvoice_grpc.py", GRPC, over=("grpc", "http")),
    Script("tests/clients/over_grpc/grpcurl_calls.py", over=("grpc", "guarded")),
)
EXAMPLES = (
    Script("examples/curl.sh", files=("it-works.mp3", "played.pcm")),
    Script("examples/openai_speech.py", OPENAI, ("it-works.mp3", "pieces.pcm")),
    Script("examples/openai_speech.mjs", OPENAI_JAVASCRIPT, ("it-works.opus",)),
    Script("examples/elevenlabs_speech.py", ELEVENLABS, ("it-works.mp3", "timed.pcm")),
    Script("examples/pipecat_pipeline.py", PIPECAT, ("pipeline.wav",)),
)
