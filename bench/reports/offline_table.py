"""The table of sentences in batches that `bench.offline` measures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Of `sentences` sentences in batches of `batch`; seconds."""

    engines: str
    batch: int
    sentences: int
    audio: float
    llm: float
    token2wav: float

    @property
    def total(self) -> float:
        return self.llm + self.token2wav

    @property
    def real_time_factor(self) -> float:
        return self.total / self.audio


HEAD = (
    "| engines | batch | sentences | audio s | LLM s | token2wav s | total s | RTF |\n|---|---|---|---|---|---|---|---|"
)


def row(cost: Cost) -> str:
    """A line under HEAD."""
    return (
        f"| {cost.engines} | {cost.batch} | {cost.sentences} | {cost.audio:.1f} | {cost.llm:.2f} | "
        f"{cost.token2wav:.2f} | "
        f"{cost.total:.2f} | {cost.real_time_factor:.4f} |"
    )
