"""The graphs of token2wav that engines run; every generation has these."""

FLOW_COMPONENTS, VOCODER_COMPONENTS = ("encoder", "estimator"), ("pitch", "filter")
COMPONENTS = FLOW_COMPONENTS + VOCODER_COMPONENTS
"""Their names in the engine cache follow `token2wav.`."""
