"""The pause that a text asks for in front of a sentence, among the samples of that sentence's sound."""

from services.orchestrator.silence import Play, play_silence


def behind_pause(milliseconds: int, play: Play) -> Play:
    """A `play` for the first sentence of an utterance: the silence leaves with the first sound, since what the first message says
    of the engines is not known before."""
    waiting = milliseconds

    async def play_both(audio: bytes) -> None:
        nonlocal waiting
        silence, waiting = waiting, 0
        await play_silence(silence, play)
        await play(audio)

    return play_both
