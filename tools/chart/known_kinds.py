"""Whether manifests of Kubernetes' own kinds fit its schemas, unknown fields included."""

import re
from collections.abc import Iterable

import kubernetes_validate

from tools.chart.rendering import Manifest

VERSIONS = ("1.27", "1.31", "1.36")
"""The oldest that the chart allows (kubeVersion), one between, and a recent one."""
_OWN = re.compile(r"v1|(apps|batch|policy|autoscaling|networking\.k8s\.io|rbac\.authorization\.k8s\.io)/v[12]")


def is_own(manifest: Manifest) -> bool:
    """Whether Kubernetes itself defines the kind."""
    return _OWN.fullmatch(manifest["apiVersion"]) is not None


def faults(documents: Iterable[Manifest], versions: Iterable[str] = VERSIONS) -> list[str]:
    """One line for each manifest of Kubernetes' own kinds that a version refuses."""
    own = [document for document in documents if is_own(document)]
    return [fault for version in versions for document in own if (fault := _fault(document, version))]


def _fault(document: Manifest, version: str) -> str:
    where = f"{document['kind']} {document['metadata']['name']}, Kubernetes {version}"
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        path = ".".join(map(str, error.path))
        return f"{where}: {path}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        return f"{where}: there is no such kind"
    return ""
