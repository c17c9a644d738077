"""Step-Audio2's flow over paged state: the arithmetic of `flow.step_dit` in kernels."""
