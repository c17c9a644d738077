"""Checks of the doctor: whether the libraries that are installed suit this release and each
other.
"""

from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.host.doctor.finding import Finding, note, ok, problem
from cosyserve.host.hardware import Library, format_version, parse_version


def check_library(library: Library, versions: dict[str, str], has_gpu: bool) -> Finding:
    """versions: of the installed distributions."""
    name = f"library {library.name}"
    installed = next(((given, versions[given]) for given in library.distributions if given in versions), None)
    install = f"pip install {library.install}"
    if installed is None:
        if library.needed == "always":
            return problem(name, "not installed", f"{library.what} cannot run", install)
        if library.needed == "gpu" and has_gpu:
            return note(
                name,
                "not installed",
                f"without it there is no {library.what}; the readable engines serve, far slower",
                install,
            )
        return ok(name, f"not installed; only for {library.what}")
    text, version = installed[1], parse_version(installed[1])
    allowed = f"from {format_version(library.oldest)} on" + (
        f", below {format_version(library.below)}" if library.below else ""
    )
    if version[: len(library.oldest)] < library.oldest or (library.below is not None and version >= library.below):
        means = f"{allowed} is supported ({library.what}); seen working: {library.seen}"
        return (problem if library.needed == "always" else note)(name, text, means, install)
    return ok(name, text)


def check_library_combinations(versions: dict[str, str]) -> list[Finding]:
    """Checks the requirements of libraries on each other."""
    findings = []
    tensorrt_llm = versions.get("tensorrt_llm")
    if tensorrt_llm is not None and parse_version(tensorrt_llm)[:2] == (0, 20):
        tensorrt = next((versions[name] for name in TENSORRT if name in versions), None)
        if tensorrt is not None and parse_version(tensorrt)[:2] != (10, 10):
            means = "the 0.20 line was built with TensorRT 10.10, and engines of another are refused"
            fix = (
                "pip install 'tensorrt-cu12==10.10.*', or use the image of Dockerfile target llm, "
                "which has matching versions"
            )
            findings.append(problem("tensorrt_llm and tensorrt", f"{tensorrt_llm} with {tensorrt}", means, fix))
        protobuf = versions.get("protobuf")
        if protobuf is not None and parse_version(protobuf) >= (6,):
            means = "the 0.20 line and its dependencies need protobuf below 6"
            fix = "pip install protobuf==5.29.6 grpcio==1.71.2 (constraints-trtllm.txt)"
            findings.append(problem("tensorrt_llm and protobuf", f"{tensorrt_llm} with {protobuf}", means, fix))
    if "onnxruntime" in versions and "onnxruntime-gpu" in versions:
        versions_found = f"{versions['onnxruntime']} and, for GPUs, {versions['onnxruntime-gpu']}"
        means = "both write the same files; whichever came last decides whether there is a GPU"
        fix = "pip uninstall --yes onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"
        findings.append(note("onnxruntime twice", versions_found, means, fix))
    return findings
