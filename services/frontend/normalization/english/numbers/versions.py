"""Versions of programs and standards: each of their numbers is read as a whole."""

import re

from services.frontend.normalization.english import numerals
from services.frontend.text.rules import Rule

_PROGRAMS = (
    "Python|Node(?:\\.js)?|Java|Ruby|Go|Golang|PHP|Perl|Rust|Scala|Kotlin|Swift|Ubuntu|Debian|Fedora|CentOS|iOS|iPadOS|"
    "macOS|watchOS|Android|Windows|Chrome|Firefox|Safari|Edge|CUDA|TensorFlow|PyTorch|NumPy|Kubernetes|Docker|Postgres|"
    "PostgreSQL|MySQL|MariaDB|SQLite|MongoDB|Redis|Django|Flask|Rails|React|Angular|Vue|Spring|Linux|kernel|TLS|SSL|"
    "USB|Bluetooth|HTTP|GCC|LLVM|Clang|npm|pip|Git|Terraform|Ansible|Spark|Kafka|Elasticsearch|Nginx|nginx|Apache|"
    "TypeScript|C#|GPT|Gemini|Claude|Llama|OpenSSL|Unity|Unreal|Blender|Photoshop|Xcode|Gradle|Maven|OpenGL|Vulkan|"
    "DirectX|Qt|Helm|Envoy|gRPC|protobuf|HDMI|PCIe|Wi-Fi"
)
_NUMBER = r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,4}(?:\.(?:x|\*))?"
_END = r"(?![0-9A-Za-z%/]|\.[0-9])"


def _parts(written: str) -> str:
    return " point ".join(
        "X" if part in ("x", "*") else numerals.pair(part) if len(part) == 2 else numerals.cardinal(part)
        for part in written.split(".")
    )


RULES: tuple[Rule, ...] = (
    (
        re.compile(rf"(?<![\w.])[vV](?P<number>[0-9]{{1,4}}(?:\.[0-9]{{1,4}}){{0,4}}(?:\.x)?){_END}"),
        lambda match: f"version {_parts(match['number'])}",
    ),
    (
        re.compile(
            rf"(?P<name>\b(?:{_PROGRAMS}|[Vv]ersions?|[Rr]eleases?|[Bb]uild|[Uu]pgrade[ds]? to|[Pp]atch)[ -])v?"
            rf"(?P<number>{_NUMBER}){_END}"
        ),
        lambda match: match["name"].replace("-", " ") + _parts(match["number"]),
    ),
)
