"""The orchestrator: the public endpoint and the pipeline of stages behind it."""
