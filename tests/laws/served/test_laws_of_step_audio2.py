"""The laws heard by a client through all four services, with the decoder of Step-Audio2 behind the
tokens of the reduced CosyVoice2.
"""

import asyncio

from tests.stacks.up_process import STEP_AUDIO2, TINY
from tests.stacks.whole_stack import whole_stack


async def test_streamed_is_whole_resumed_is_the_tail_and_together_is_one_by_one() -> None:
    async with whole_stack(TINY, decoder_model=STEP_AUDIO2, guards=False) as stack:

        async def say(**options: object) -> bytes:
            request = {"text": "Hi.", "seed": 11, "voice": "zs_a", **options}
            return await stack.client.synthesize(**request).read()  # type: ignore[arg-type]

        whole = await say(first_hop_tokens=100, growth="exponential", max_hop_tokens=400)
        assert len(whole) > 24_000
        assert await say(first_hop_tokens=1, growth="fixed") == whole
        assert await say(start_sample=10_001) == whole[20_002:]
        other = await say(text="Ho.", seed=3)
        assert await asyncio.gather(say(), say(text="Ho.", seed=3)) == [whole, other]
        assert whole != other
