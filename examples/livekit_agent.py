# /// script
# requires-python = ">=3.11"
# dependencies = ["livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9"]
# ///
"""A LiveKit agent whose voice is this server. `make clients` runs its session with a sink for audio
in place of a room; it was never run with a LiveKit server, since that is no Python package.

    pip install livekit-agents==1.8.9 livekit-plugins-openai==1.8.9
    LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=... python examples/livekit_agent.py dev

Add `stt=` and `llm=` to the session for an agent that listens and answers.
"""

import os

from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli
from livekit.plugins import openai

server = AgentServer()


class Host(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="You take bookings for a small restaurant.")

    async def on_enter(self) -> None:
        await self.session.say("Good evening! How many of you will there be?")


def session() -> AgentSession:
    address = os.environ.get("COSYSERVE_URL", "http://127.0.0.1:8080")
    voice = openai.TTS(base_url=f"{address}/v1", api_key="none", voice="nova", response_format="pcm")
    return AgentSession(tts=voice)


@server.rtc_session()
async def greet(context: JobContext) -> None:
    await session().start(Host(), room=context.room)


if __name__ == "__main__":
    cli.run_app(server)
