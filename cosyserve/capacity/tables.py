"""A plan as a table for people and as an object for programs."""

from typing import Any

from cosyserve.capacity.plan import Plan


def as_text(plan: Plan) -> str:
    """Several lines."""
    demand, load = plan.demand, plan.load
    lines = [
        f"{demand.streams} streams, sentences of {demand.sentence:g} s, {demand.streams * demand.requests:.1f} "
        f"requests a second; engines as on {plan.profile}",
        f"first sound of 95 % within {1000 * load.first_sound:.0f} ms (allowed: {1000 * demand.slo:g}) without the "
        f"spare pods; a token2wav is then used to {load.used:.0%}, in steps of {load.blocks:.1f} blocks and "
        f"{1000 * load.step:.0f} ms",
        f"GPUs {plan.placement}: "
        + (
            "each serves an LLM and a token2wav"
            if plan.placement == "shared"
            else "one for each LLM and each token2wav"
        ),
        "",
        "stage          streams a pod   pods   at most   GPUs   vCPU   scaled by                       target",
    ]
    lines += [
        f"{one.stage:<14} {one.streams:>13} {one.pods:>6} {one.most:>9} {one.gpus:>6} {one.cores:>6g}   "
        f"{one.metric:<28} {one.threshold:>9g}"
        for one in plan.stages
    ]
    lines += [
        "",
        f"{plan.gpus} GPUs, {plan.cores:g} vCPU{_costs(plan)}; spare pods of each stage: {plan.choices.spare}",
    ]
    return "\n".join(lines)


def _costs(plan: Plan) -> str:
    if plan.cost is None:
        return "; --gpu-price and --cpu-price give the cost"
    hearing = 1000 * plan.cost / plan.demand.streams
    return f", {plan.cost:,.2f} an hour, {hearing:.2f} for 1000 hours of listening"


def as_dict(plan: Plan) -> dict[str, Any]:
    """Seconds and counts."""
    demand, load = plan.demand, plan.load
    return {
        "streams": demand.streams,
        "requests_a_second": demand.streams * demand.requests,
        "slo_seconds": demand.slo,
        "sentence_seconds": demand.sentence,
        "profile": plan.profile,
        "placement": plan.placement,
        "headroom": plan.choices.headroom,
        "spare": plan.choices.spare,
        "first_sound_p95_seconds": load.first_sound,
        "token2wav": {
            "used": load.used, "step_blocks": load.blocks, "step_seconds": load.step, "open_streams": load.open
        },
        "stages": [
            {
                "stage": one.stage, "streams_a_pod": one.streams, "pods": one.pods, "most_pods": one.most,
                "gpus": one.gpus, "cores": one.cores, "metric": one.metric, "target": one.threshold,
                "settings": one.settings,
            }
            for one in plan.stages
        ],
        "gpus": plan.gpus,
        "cores": plan.cores,
        "cost_an_hour": plan.cost,
    }  # fmt: skip
