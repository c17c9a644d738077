"""How many kernels oneDNN keeps, which computes the vocoder's convolutions on a CPU.

oneDNN compiles a kernel for each shape that it meets, and keeps 1024 of them. The last window of a
sentence has one of 25 lengths, and each of them comes with its own shapes: some 2000 kernels in
all. With 1024 nearly every sentence compiled most of those of its last window once more, and gave
up as many others; these lie between all that malloc has handed out, and what they leave is in ever
more pieces, so that the process grows.
"""

import os
from collections.abc import MutableMapping

CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
"""Read by oneDNN when it needs its first kernel."""
OLDER_NAME = "DNNL_PRIMITIVE_CACHE_CAPACITY"
"""By which oneDNN knows the same."""
KERNELS = 4096
"""About 90 KB each; what is spoken at other speeds or in other profiles has shapes of its own."""


def keep_compiled_kernels(environ: MutableMapping[str, str] = os.environ) -> None:
    """Make room for the kernels of all windows, unless the operator has said how much there is.

    For the whole process, and of no effect once it has computed a convolution.
    """
    if OLDER_NAME not in environ:
        environ.setdefault(CAPACITY, str(KERNELS))
