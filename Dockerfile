# One target per image:  docker build --target token2wav-cpu -t cosyserve-token2wav-cpu:0.2.0 .
#   CPU      frontend  llm-cpu  token2wav-cpu  orchestrator  gateway
#   NVIDIA   llm  token2wav
# Weights are mounted, never baked in; the bundled voice of 38 MB comes along so that every image can start by itself.
# compose.yaml starts all five on one GPU, compose.gpus.yaml with a GPU for each engine.
# Health is asked for in plain HTTP on a port that only the container reaches, since the others may have TLS.
# DL3064 is ignored where hadolint takes TOKEN2WAV for a secret.

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG TENSORRT_LLM_IMAGE=nvcr.io/nvidia/tensorrt-llm/release:1.0.0
# One generation of CUDA in an image: torch of constraints.txt and TensorRT below are built for CUDA 13, which wants driver 580 or later.
ARG CUDA_IMAGE=nvidia/cuda:13.0.1-base-ubuntu24.04

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY pyproject.toml README.md ./
COPY packages/server packages/server
COPY cosyserve cosyserve
COPY services services
COPY tools tools
COPY bench bench
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel . ./packages/server

FROM ${PYTHON_IMAGE} AS slim
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
COPY models/demo models/demo
COPY models/cosyvoice2-0.5b.toml models/cosyvoice3-0.5b.toml models/step-audio2-token2wav.toml models/
COPY constraints.txt ./
RUN useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin cosyserve

FROM slim AS slim-torch
# Empty: the package index's own build. A CPU-only build is smaller: pass the index that has it.
ARG TORCH_INDEX_URL=
RUN pip install --constraint constraints.txt ${TORCH_INDEX_URL:+--index-url "${TORCH_INDEX_URL}"} torch==2.13.0 \
    && pip check

FROM slim-torch AS frontend
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    pip install --constraint constraints.txt /wheel/cosyserve-*.whl "$(echo /wheel/cosyserve_server-*.whl)[frontend]" \
    && install --directory --owner=10001 --group=10001 /var/lib/cosyserve/voices \
    && pip check
USER 10001
EXPOSE 50052
ENV COSYSERVE_FRONTEND_LISTEN=0.0.0.0:50052 COSYSERVE_FRONTEND_HEALTH_LISTEN=127.0.0.1:8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-m", "cosyserve.probe", "--http", "8081"]
ENTRYPOINT ["python", "-m", "services.frontend"]

FROM slim-torch AS llm-cpu
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    pip install --constraint constraints.txt /wheel/cosyserve-*.whl "$(echo /wheel/cosyserve_server-*.whl)[llm]" \
    && pip check
USER 10001
EXPOSE 50053
ENV COSYSERVE_LLM_LISTEN=0.0.0.0:50053 COSYSERVE_LLM_HEALTH_LISTEN=127.0.0.1:8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-m", "cosyserve.probe", "--http", "8081"]
ENTRYPOINT ["python", "-m", "services.llm"]

FROM slim-torch AS token2wav-cpu
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    pip install --constraint constraints.txt /wheel/cosyserve-*.whl "$(echo /wheel/cosyserve_server-*.whl)[token2wav]" \
    && pip check
USER 10001
EXPOSE 50054
# hadolint ignore=DL3064
ENV COSYSERVE_TOKEN2WAV_LISTEN=0.0.0.0:50054 COSYSERVE_TOKEN2WAV_HEALTH_LISTEN=127.0.0.1:8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-m", "cosyserve.probe", "--http", "8081"]
ENTRYPOINT ["python", "-m", "services.token2wav"]

FROM slim AS orchestrator
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    pip install --constraint constraints.txt /wheel/cosyserve-*.whl "$(echo /wheel/cosyserve_server-*.whl)[orchestrator,jwt,words]" \
    && pip check
USER 10001
EXPOSE 50051
ENV COSYSERVE_ORCHESTRATOR_LISTEN=0.0.0.0:50051 COSYSERVE_ORCHESTRATOR_HEALTH_LISTEN=127.0.0.1:8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-m", "cosyserve.probe", "--http", "8081"]
ENTRYPOINT ["python", "-m", "services.orchestrator"]

FROM slim AS gateway
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    pip install --constraint constraints.txt /wheel/cosyserve-*.whl "$(echo /wheel/cosyserve_server-*.whl)[gateway]" \
    && pip check
USER 10001
EXPOSE 8080
ENV COSYSERVE_GATEWAY_LISTEN=0.0.0.0:8080 COSYSERVE_GATEWAY_HEALTH_LISTEN=127.0.0.1:8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "services.gateway.probe", "8081"]
ENTRYPOINT ["python", "-m", "services.gateway"]

# What the base image has stays as it is, and only what it lacks is added, by the pins of constraints-trtllm.txt (tools/image_packages.py).
FROM ${TENSORRT_LLM_IMAGE} AS llm
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY models/demo models/demo
COPY models/cosyvoice2-0.5b.toml models/cosyvoice3-0.5b.toml models/step-audio2-token2wav.toml models/
COPY constraints-trtllm.txt ./
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    --mount=from=wheel,source=/source/tools,target=/tools \
    useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin cosyserve \
    && install --directory --owner=10001 --group=10001 /var/cache/cosyserve \
    && python3 /tools/image_packages.py --constraint constraints-trtllm.txt /wheel/*.whl
USER 10001
EXPOSE 50053
# Where the base's Triton is older than 3.6 the readable engine serves and the log says so. A volume mounted over /var/cache/cosyserve keeps
# compiled kernels, conversions and built engines. HOME too has to be writable: the base's libraries make directories there when imported.
# The image is made for TensorRT-LLM, which auto tries first here; /tmp may not be executable, so that compiled code is kept in the cache too.
ENV COSYSERVE_LLM_LISTEN=0.0.0.0:50053 COSYSERVE_LLM_HEALTH_LISTEN=127.0.0.1:8081 COSYSERVE_LLM_AUTO_FIRST=tensorrt_llm \
    COSYSERVE_CACHE_DIR=/var/cache/cosyserve HOME=/var/cache/cosyserve \
    TORCHINDUCTOR_CACHE_DIR=/var/cache/cosyserve/inductor
HEALTHCHECK --interval=30s --timeout=5s --start-period=600s CMD ["python3", "-m", "cosyserve.probe", "--http", "8081"]
ENTRYPOINT ["python3", "-m", "services.llm"]

# The torch wheel brings its CUDA libraries and Triton; the base brings what the driver needs. Triton builds its launchers with gcc.
FROM ${CUDA_IMAGE} AS token2wav
# Empty: without TensorRT, which the engines of our own do not need. onnx and onnxruntime are what its plans are built with.
ARG TENSORRT_PACKAGE=tensorrt-cu13==10.13.3.9
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/venv/bin:$PATH
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv \
    && useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin cosyserve \
    && install --directory --owner=10001 --group=10001 /var/cache/cosyserve
WORKDIR /app
COPY models/demo models/demo
COPY models/cosyvoice2-0.5b.toml models/cosyvoice3-0.5b.toml models/step-audio2-token2wav.toml models/
COPY constraints.txt ./
RUN --mount=from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir --constraint constraints.txt /wheel/cosyserve-*.whl "$(echo /wheel/cosyserve_server-*.whl)[token2wav,engines]" ${TENSORRT_PACKAGE:+"${TENSORRT_PACKAGE}"} \
    && pip check
USER 10001
EXPOSE 50054
# hadolint ignore=DL3064
ENV COSYSERVE_TOKEN2WAV_LISTEN=0.0.0.0:50054 COSYSERVE_TOKEN2WAV_HEALTH_LISTEN=127.0.0.1:8081 COSYSERVE_TOKEN2WAV_DEVICE=cuda \
    COSYSERVE_CACHE_DIR=/var/cache/cosyserve HOME=/var/cache/cosyserve \
    TORCHINDUCTOR_CACHE_DIR=/var/cache/cosyserve/inductor
HEALTHCHECK --interval=30s --timeout=5s --start-period=600s CMD ["python", "-m", "cosyserve.probe", "--http", "8081"]
ENTRYPOINT ["python", "-m", "services.token2wav"]
