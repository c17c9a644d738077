"""A plan as a table for people, as an object for programs, and as values of `k8s/chart`, to be
given to helm after those that name model, keys and claims.
"""

from typing import Any

import yaml

from cosyserve.capacity.plan import SHARED, Plan, StagePlan

_GPU, _SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"


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


def values(plan: Plan) -> dict[str, Any]:
    """One entry of `services` for each stage, and KEDA as what scales."""
    return {
        "autoscaling": {"kind": "keda"},
        "services": {one.stage: _service(one, plan) for one in plan.stages},
    }


def _service(one: StagePlan, plan: Plan) -> dict[str, Any]:
    engine = one.stage in ("llm", "token2wav")
    service: dict[str, Any] = {
        "replicas": one.pods,
        "autoscaling": {
            "enabled": True,
            "min": 1 + plan.choices.spare,
            "max": one.most,
            "target": f"{one.threshold:g}",
            "cpuPercent": 0 if engine else round(100 * plan.choices.headroom),
        },
        "resources": {"requests": {"cpu": f"{one.cores / one.pods:g}"}},
    }
    if engine:
        service["image"] = one.stage
        service["gpu"] = {"count": 1, "resource": _SHARED_GPU if plan.placement == SHARED else _GPU}
    if one.settings:
        service["settings"] = one.settings
    return service


def as_yaml(plan: Plan) -> str:
    """With a comment that says what it is for."""
    demand = plan.demand
    head = (
        f"# {demand.streams} streams, 95 % of them sound within {1000 * demand.slo:g} ms; sentences of "
        f"{demand.sentence:g} s. Engines as on {plan.profile}.\n"
    )
    return head + str(yaml.safe_dump(values(plan), sort_keys=False))
