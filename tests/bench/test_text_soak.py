"""A few minutes' worth of text, streamed: all of it is spoken, and the measurement of an hour
(`make soak`) measures.
"""

from pathlib import Path

import pytest

from bench.text_soak import soak


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_a_short_text_soak_loses_nothing(mode: str) -> None:
    result = await soak(Path("models/demo"), characters=3_000, mode=mode)  # type: ignore[arg-type]
    assert result.characters >= 3_000
    # In token mode a sentence is as long as the model takes, in sentence mode as its text.
    assert 55 <= result.sentences <= 75
    assert result.audio_seconds > 180
    assert set(result.memory.slopes) == {"frontend.0", "llm.0", "token2wav.0", "orchestrator.0"}
