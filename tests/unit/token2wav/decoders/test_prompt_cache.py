"""The prompt cache stays within its limit."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from services.token2wav.decoders.prompt_cache import PromptCache
from services.token2wav.inputs.request import Voice
from tests.unit.token2wav.speaking import voice


@dataclass(eq=False)
class Kept:
    bytes: int


def kept(size: int) -> Any:
    return cast(Any, Kept(size))


def test_the_least_recently_used_goes_first() -> None:
    cache, states = PromptCache(100), {name: kept(40) for name in "abc"}
    cache.put("a", states["a"])
    cache.put("b", states["b"])
    assert cache.get("a") is states["a"]
    cache.put("c", states["c"])
    assert [name in cache for name in "abc"] == [True, False, True]
    assert cache.bytes == 80


def test_what_does_not_fit_at_all_is_not_kept() -> None:
    cache = PromptCache(100)
    cache.put("small", kept(10))
    cache.put("large", kept(101))
    assert cache.get("large") is None
    assert cache.get("small") is not None


def test_a_name_covers_the_content_and_no_name_means_not_kept() -> None:
    assert voice(30).state_key == ""
    assert voice(30, key="v").state_key == voice(30, key="v").state_key
    assert len({voice(30, key="v").state_key, voice(31, key="v").state_key, voice(30, key="w").state_key}) == 3


def test_bytes_cannot_move_between_the_parts_of_a_name() -> None:
    long, short = (
        Voice(np.zeros(n, np.int64), np.zeros((0, 80), np.float32), np.zeros(192, np.float32)) for n in (2, 1)
    )
    assert replace(long, key="v").state_key != replace(short, key="v" + 8 * chr(0)).state_key
