"""`python -m bench.frontend`: what the frontend costs per request of 200 characters, in one thread:
normalised, and with splitting and tokenising.

Texts differ from request to request, so that no cache of whole sentences could help; the median and
the 95th percentile are given. The clock is the thread's own (processor time), so that other work on
the machine counts little.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.load.command_line import show
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText

CHARACTERS = 200
WARM_UP = 20
"""Requests before those that count."""
MODELS = ("models/demo", "tests/golden/tiny")
PLAIN_ENGLISH = (
    "Nobody had expected that so many would come on such a day. ",
    "Everything else was quiet, as it mostly is there. ",
    "It had rained for hours, and the road along the river was closed. ",
    "The children waited in the yard until it was dark. ",
)
PLAIN_CHINESE = (
    "谁也没有想到这么多人会在这样的天气里来。",
    "其他的一切都很安静，和往常一样，没有什么变化。",
    "雨下了好几个小时，河边的路已经不能走了。",
    "孩子们在院子里等着，谁也不愿意先回家去。",
    "窗户开着，风把桌上的报纸吹到了地上。",
)
FIVE_ENGLISH = (
    "The committee met on May {n} at 7:30pm in the old town hall. ",
    "Nobody had expected that {n} people would come for $4.50 each. ",
    "She called again, but nobody answered at number {n}, and it rained. ",
)
FIVE_CHINESE = (
    "会议在5月{n}日下午7:30开始，来的人比想象的多，谁也没有想到会在这样的天气里来。",
    "她又打来了，可是{n}号房间没有人接，雨下了好几个小时，河边的路已经不能走了。",
    "一共花了{n}.5元，孩子们在院子里等着，谁也不愿意先回家去，窗户开着。",
    "其他的一切都很安静，和往常一样，没有什么变化，他等了{n}分钟才走。",
    "风把桌上的报纸吹到了地上，门口的灯还亮着，可是屋里一个人也没有。",
)
"""Five numbers or a few more in 200 characters."""
DENSE_CHINESE = ("2024年5月{n}日下午7:30，", "花了12{n}.5元，", "大约{n}个人跑了5-10公里，", "电话13800138{n}0，")
DENSE = ("It cost $1,2{n}.50 on 2024-05-{n}. ", "About {n} people ran 5-10 km at 7:30pm. ", "Call +1 555 010 99{n}. ")
"""Hardly a word without a number: the worst that people write."""
TEXTS = {
    "English, plain words": PLAIN_ENGLISH,
    "Chinese, plain words": PLAIN_CHINESE,
    "English, five numbers": FIVE_ENGLISH,
    "Chinese, five numbers": FIVE_CHINESE,
    "English, all numbers": DENSE,
    "Chinese, all numbers": DENSE_CHINESE,
}


def request(number: int, sentences: tuple[str, ...]) -> str:
    """The text of request `number`: 200 characters, sentences in another order and with other
    numbers each time.
    """
    text = "".join(
        sentences[(number + place) % len(sentences)].format(n=10 + (number * 7 + place) % 80) for place in range(24)
    )
    return text[:CHARACTERS]


def milliseconds(work: Callable[[str], int], texts: list[str]) -> list[float]:
    """Time of each text; `work` returns how much came of it."""
    spent = []
    for text in texts:
        begin = time.thread_time()
        count = work(text)
        spent.append((time.thread_time() - begin) * 1000)
        if count == 0:
            raise ValueError("a text came to nothing")
    return spent


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a text of CHARACTERS characters."""

    model: str
    texts: str
    work: str
    median: float
    p95: float


def measure(requests: int) -> list[Cost]:
    """For each model, kind of texts and extent of the work one row."""
    costs = []
    for model in MODELS:
        analyzer = Analyzer(Normalizer(WeText()), read_tokenizer(ModelDirectory(Path(model))))

        def tokenised(text: str, analyzer: Analyzer = analyzer) -> int:
            return sum(len(sentence.token_ids) for sentence in analyzer.sentences(text))

        def normalised(text: str, analyzer: Analyzer = analyzer) -> int:
            return len(analyzer.normalise(text))

        for name, sentences in TEXTS.items():
            if name.startswith("Chinese") and analyzer.tokenizer.is_phonemes is not None:
                continue
            texts = [request(number, sentences) for number in range(requests + WARM_UP)]
            for what, work in (("normalised", normalised), ("split and tokenised too", tokenised)):
                spent = milliseconds(work, texts)[WARM_UP:]
                p95 = statistics.quantiles(spent, n=20)[-1]
                costs.append(Cost(model, name, what, round(statistics.median(spent), 2), round(p95, 2)))
    return costs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frontend", description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="of each language (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go as well")
    options = parser.parse_args(arguments)
    return show("bench.frontend", lambda: measure(options.requests), options.json)


if __name__ == "__main__":
    sys.exit(main())
