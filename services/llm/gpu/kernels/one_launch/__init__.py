"""CUDA C++ of the decode step of one row as one launch, one source in several files: joined in the
order of `services.llm.gpu.one_launch.SOURCES`.
"""
