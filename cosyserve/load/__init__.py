"""Load on a server and what its listeners would hear, as `cosyserve bench` measures it."""
