"""Values of `k8s/chart` for a plan, to be given to helm after those that name model, keys and
claims.
"""

from typing import Any

import yaml

from cosyserve.capacity.plan import SHARED, Plan, StagePlan

_GPU, _SHARED_GPU = "nvidia.com/gpu", "nvidia.com/gpu.shared"


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
