"""The arithmetic of a plan, and what it promises of itself."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import yaml

from cosyserve.capacity.demand import Demand
from cosyserve.capacity.first_sound import engine_load, llm_used, token2wav_used
from cosyserve.capacity.plan import PLACEMENTS, SEPARATE, SHARED, Choices, Impossible, plan
from cosyserve.capacity.report_file import default_profile
from cosyserve.capacity.tables import as_dict, as_text, as_yaml, values
from cosyserve.generations.cosyvoice3 import COSYVOICE3

PROFILE = default_profile()
STAGES = ("gateway", "orchestrator", "frontend", "llm", "token2wav")
MANY = Demand(streams=1000, slo=0.25)


@pytest.mark.parametrize(
    ("prompt_tokens", "first_hop"),
    [(87, 13), (90, 35), (75, 25), (100, 25), (99, 26), (89, 11), (64, 11)],
)
def test_the_first_piece_ends_at_the_next_border_that_gives_sound(prompt_tokens: int, first_hop: int) -> None:
    """docs/gpu-token2wav.md: 87 prompt tokens need 13, 90 need 35."""
    assert Demand(streams=1, slo=1, prompt_tokens=prompt_tokens).first_hop_tokens == first_hop


@pytest.mark.parametrize(("prompt_tokens", "first_hop"), [(87, 13), (90, 10), (97, 3), (98, 27)])
def test_cosyvoice3_holds_back_less(prompt_tokens: int, first_hop: int) -> None:
    demand = Demand(streams=1, slo=1, prompt_tokens=prompt_tokens, hold_back_tokens=COSYVOICE3.hold_back_tokens)
    assert (demand.first_hop_tokens, demand.first_piece) == (first_hop, (first_hop - 2) / 25)


def test_the_llm_of_a_gpu_is_used_by_prompts_and_tokens() -> None:
    demand = Demand(streams=100, slo=1, sentence=4.0, prompt_positions=128)
    prompts, tokens = PROFILE.prefill / 2, 100 * PROFILE.decode[128] / 128
    assert llm_used(PROFILE, demand, 100, shared=False) == pytest.approx(25 * (prompts + tokens))


def test_token2wav_is_used_by_blocks() -> None:
    demand = Demand(streams=100, slo=1)
    used = [token2wav_used(PROFILE, demand, streams, shared=False) for streams in (50, 100)]
    assert 2 * used[0] < used[1] < 2.2 * used[0], "twice the streams, and planning that looks at more of them"
    assert token2wav_used(PROFILE, demand, 100, shared=True) > used[1]


def test_more_streams_wait_longer_and_open_more() -> None:
    loads = [engine_load(PROFILE, MANY, streams, streams, shared=True) for streams in range(1, 290, 8)]
    sounds = [one.first_sound for one in loads]
    assert all(before <= after + 0.003 for before, after in pairwise(sounds))
    assert math.isinf(engine_load(PROFILE, MANY, 500, 500, shared=True).first_sound)


def test_one_stream_sounds_as_soon_as_it_was_measured() -> None:
    """34 ms and 36 ms (p95) on an H200, docs/gpu.md; the plan may be a third above it."""
    assert 0.034 < engine_load(PROFILE, MANY, 1, 1, shared=True).first_sound < 0.048


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_pods_hold_the_streams_with_their_spare_ones(placement: str) -> None:
    found = plan(PROFILE, MANY, Choices(spare=2), placement)
    assert tuple(one.stage for one in found.stages) == STAGES
    for one in found.stages:
        assert (one.pods - 2) * one.streams >= MANY.streams
        assert (one.pods - 3) * one.streams < MANY.streams or one.stage == "llm"
        assert 0 < one.threshold <= 0.8
    engines = found.stage("llm").pods + found.stage("token2wav").pods
    assert found.gpus == (found.stage("token2wav").pods if placement == SHARED else engines)
    assert found.load.first_sound <= MANY.slo


def test_fewer_gpus_decide_where_no_placement_is_asked_for() -> None:
    both = [plan(PROFILE, MANY, Choices(), placement).gpus for placement in PLACEMENTS]
    assert plan(PROFILE, MANY, Choices()).gpus == min(both)


def test_a_stricter_limit_takes_more_gpus() -> None:
    gpus = [plan(PROFILE, replace(MANY, slo=slo), Choices()).gpus for slo in (0.09, 0.15, 0.4)]
    assert gpus == sorted(gpus, reverse=True)
    assert gpus[0] > gpus[-1]


def test_cost_is_gpus_and_cores_by_their_prices() -> None:
    assert plan(PROFILE, MANY, Choices()).cost is None
    found = plan(PROFILE, MANY, Choices(gpu_price=3.0, cpu_price=0.05))
    assert found.cost == pytest.approx(3.0 * found.gpus + 0.05 * found.cores)
    assert plan(PROFILE, MANY, Choices(cpu_price=0.0)).cost == 0.0


def test_long_sentences_are_bounded_by_memory() -> None:
    small = replace(PROFILE, memory=16 << 30)
    long = replace(MANY, sentence=30.0, slo=2.0)
    on_small, on_large = (plan(profile, long, Choices(), SEPARATE).stage("token2wav") for profile in (small, PROFILE))
    assert on_small.streams < 0.8 * on_large.streams
    with pytest.raises(Impossible, match="GB for the state of streams"):
        plan(replace(PROFILE, memory=8 << 30), long, Choices())


def test_what_cannot_be_is_refused_with_what_could() -> None:
    with pytest.raises(Impossible, match=r"--slo-ms is 20, and even a single stream sounds after [0-9]+ ms"):
        plan(PROFILE, replace(MANY, slo=0.02), Choices())


def test_what_is_said_to_be_allowed_is_allowed() -> None:
    """Of two placements the one counts with which more can be asked for."""
    one = Demand(streams=1, slo=0.02)
    with pytest.raises(Impossible) as caught:
        plan(PROFILE, one, Choices())
    assert plan(PROFILE, replace(one, slo=1.3 * caught.value.seconds), Choices()).gpus
    with pytest.raises(Impossible):
        plan(PROFILE, replace(one, slo=0.99 * caught.value.seconds), Choices())


def test_values_name_what_the_plan_says() -> None:
    found = plan(PROFILE, MANY, Choices(), SHARED)
    given = yaml.safe_load(as_yaml(found))
    assert given == values(found)
    assert given["autoscaling"] == {"kind": "keda"}
    assert set(given["services"]) == set(STAGES)
    token2wav = given["services"]["token2wav"]
    assert token2wav["replicas"] == found.stage("token2wav").pods
    assert token2wav["gpu"] == {"count": 1, "resource": "nvidia.com/gpu.shared"}
    assert int(token2wav["settings"]["STATE_BYTES"]) == found.pages * PROFILE.block_bytes
    assert float(token2wav["autoscaling"]["target"]) == found.stage("token2wav").threshold
    assert "gpu" not in given["services"]["gateway"]
    assert all(isinstance(text, str) for one in given["services"].values() for text in one.get("settings", {}).values())


def test_table_and_object_say_the_same() -> None:
    found = plan(PROFILE, MANY, Choices(gpu_price=2.0))
    told = json.loads(json.dumps(as_dict(found)))
    text = as_text(found)
    assert f"{found.gpus} GPUs" in text
    assert told["gpus"] == found.gpus
    for one in told["stages"]:
        row = next(line for line in text.splitlines() if line.startswith(f"{one['stage']} "))
        assert [one["streams_a_pod"], one["pods"], one["most_pods"], one["gpus"]] == [
            int(word) for word in row.split()[1:5]
        ]
