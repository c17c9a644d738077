"""The plugin that vLLM calls in each of its processes, by the entry point `vllm.general_plugins` of
this distribution: it registers the model of our export.
"""

import os
from importlib.metadata import entry_points

GROUP = "vllm.general_plugins"
NAME = "cosyserve"
ARCHITECTURE = "CosyVoice2ForCausalLM"
"""Name of the architecture in config.json of the export."""
_REGISTER = "services.llm.hosted.vllm.vllm_plugin:register"
_MODEL = "services.llm.hosted.vllm.vllm_model:CosyVoice2ForCausalLM"
_CHOICE = "VLLM_PLUGINS"


def register() -> None:
    """Register the model by name, so that the class is imported only where the model is loaded."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, _MODEL)


def plugin_refusal() -> str:
    """Why vLLM would not load the plugin; empty where it will."""
    if _REGISTER not in (one.value for one in entry_points(group=GROUP)):
        return (
            f"this installation of cosyserve has no entry point {GROUP}, so vLLM does not know the model: "
            "reinstall it with pip"
        )
    chosen = os.environ.get(_CHOICE)
    if chosen is not None and NAME not in chosen.split(","):
        return f"{_CHOICE} is {chosen!r}, which leaves {NAME} out: add it, or unset the variable"
    return ""
