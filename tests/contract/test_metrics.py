"""What the services count, read from a real OTLP/gRPC receiver."""

from pathlib import Path

from cosyserve.client import Client
from cosyserve.supervision.stack import running_stack
from tests.contract.metrics_receiver import metrics_receiver

PROMPTS = "cosyserve.token2wav.prompts"


async def test_prompts_that_were_kept_are_counted() -> None:
    async with metrics_receiver() as (receiver, environ):
        # Leaving the stack makes every service send what it still holds.
        stack_of = running_stack(Path("models/demo"), environ={**environ, "COSYSERVE_ORCHESTRATOR_WARM_VOICES": "0"})
        async with stack_of as stack, Client(stack.address) as client:
            for _ in range(3):
                await client.synthesize("Counted.", seed=1).read()
    assert (receiver.total(PROMPTS, result="hit"), receiver.total(PROMPTS, result="miss")) == (2, 1)
