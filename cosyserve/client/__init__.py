"""The client of the public endpoint: speech as an async iterator of chunks. These are the names for
users.
"""

from cosyserve.audio.encoding import Encoding
from cosyserve.client.client import Client
from cosyserve.client.types import Prompt

__all__ = ["Client", "Encoding", "Prompt"]
