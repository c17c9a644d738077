"""Certificates, keys, credentials and weights are where the settings say, in the pods that need
them.
"""

from pathlib import Path

from cosyserve.settings import load
from cosyserve.tls.certificate_files import CertificateFiles
from tests.unit.chart.manifests_of import (
    SERVICES,
    SET_NAMES,
    STAGES,
    by_name,
    container,
    documents,
    environment,
    needs_helm,
    pod,
    refusal,
    with_set,
)
from tests.unit.repository.test_images import SETTINGS
from tools.model import download

pytestmark = needs_helm


def volumes(deployment: dict) -> dict[str, dict]:
    return {each["name"]: each for each in pod(deployment)["volumes"]}


def test_certificates_are_mounted_where_the_settings_say() -> None:
    for service, deployment in by_name("Deployment", documents("tls")).items():
        settings = load(SETTINGS[service], f"COSYSERVE_{service.upper()}_", environment(deployment))
        secret = "orchestrator-tls" if service == "orchestrator" else "speech-tls"
        assert volumes(deployment)["tls"]["secret"] == {"secretName": secret, "defaultMode": 0o440}
        mount = {"name": "tls", "mountPath": "/etc/cosyserve/tls", "readOnly": True}
        assert mount in container(deployment)["volumeMounts"]
        folder = Path(mount["mountPath"])
        assert settings.served_files == CertificateFiles(*(folder / file for file in ("tls.crt", "tls.key", "ca.crt")))
        allowed = ("spiffe://cluster.local/ns/speech/sa/orchestrator",) if service in STAGES else ()
        assert settings.tls_client_names == allowed
        if service not in STAGES:
            assert settings.calls is not None
            assert settings.calls.files == settings.served_files
            # A certificate has the name of the Service, which the gateway does not call.
            assert settings.calls.name == ("tts-orchestrator" if service == "gateway" else "")
    services = by_name("Service", documents("tls")).values()
    assert {service["spec"]["ports"][0]["appProtocol"] for service in services} == {"https"}
    for deployment in by_name("Deployment", documents()).values():
        assert "TLS" not in str(environment(deployment))


def test_credentials_of_the_voices_are_the_frontends_alone() -> None:
    for service, deployment in by_name("Deployment", documents("hostpath")).items():
        expected = [{"secretRef": {"name": "speech-bucket"}}] if service == "frontend" else None
        assert container(deployment).get("envFrom") == expected, service
    for name in SET_NAMES:
        if name not in ("hostpath", "many"):
            assert not any("envFrom" in container(each) for each in by_name("Deployment", documents(name)).values())


def test_the_keys_are_the_orchestrators_alone_and_follow_their_secret() -> None:
    deployments = by_name("Deployment", documents("gpu-each-stage"))
    for service, deployment in deployments.items():
        assert ("keys" in volumes(deployment)) == (service == "orchestrator"), service
        assert ("wyoming-key" in volumes(deployment)) == (service == "gateway"), service
    (mount,) = (each for each in container(deployments["orchestrator"])["volumeMounts"] if each["name"] == "keys")
    assert "subPath" not in mount
    variables = environment(deployments["orchestrator"])
    assert variables["COSYSERVE_ORCHESTRATOR_KEYS_FILE"] == mount["mountPath"] + "/keys.json"
    assert variables["COSYSERVE_ORCHESTRATOR_INSECURE"] == "false"
    assert environment(deployments["gateway"])["COSYSERVE_GATEWAY_REQUIRE_KEY"] == "true"


def test_weights_come_from_a_claim_a_node_or_an_object_store() -> None:
    for name, source in (
        ("gpu-each-stage", {"persistentVolumeClaim": {"claimName": "cosyvoice2", "readOnly": True}}),
        ("hostpath", {"hostPath": {"path": "/srv/cosyvoice2", "type": "Directory"}}),
        ("many", {"emptyDir": {"sizeLimit": "8Gi"}}),
    ):
        deployments = by_name("Deployment", documents(name))
        for service in SERVICES:
            assert ("model" in volumes(deployments[service])) == (service in STAGES)
        for stage in STAGES:
            assert volumes(deployments[stage])["model"] == {"name": "model", **source}
            path = environment(deployments[stage])[f"COSYSERVE_{stage.upper()}_MODEL"]
            mount = {"name": "model", "mountPath": path, "readOnly": True}
            assert mount in container(deployments[stage])["volumeMounts"]


def test_another_flow_and_vocoder_are_mounted_in_token2wav_alone() -> None:
    deployments = by_name("Deployment", documents("step-audio2"))
    path = "/models/Step-Audio-2-mini/token2wav"
    for service in SERVICES:
        assert ("token2wav-model" in volumes(deployments[service])) == (service == "token2wav")
        variables = environment(deployments[service])
        assert variables.get("COSYSERVE_TOKEN2WAV_DECODER_MODEL") == (path if service == "token2wav" else None)
    claim = {"claimName": "step-audio2", "readOnly": True}
    assert volumes(deployments["token2wav"])["token2wav-model"]["persistentVolumeClaim"] == claim
    mount = {"name": "token2wav-model", "mountPath": path, "readOnly": True}
    assert mount in container(deployments["token2wav"])["volumeMounts"]
    assert deployments["token2wav"]["spec"]["replicas"] == 3
    for wrong in ("model.token2wav.claim=a", "model.token2wav.hostPath=/a"):
        assert "model/token2wav" in refusal("access.insecure=true", wrong)


def test_an_init_container_fetches_and_compares_with_pins() -> None:
    for stage in STAGES:
        deployment = by_name("Deployment", documents("many"))[stage]
        (fetch,) = pod(deployment)["initContainers"]
        assert fetch["image"] == "registry.example.org/speech/cosyserve-frontend:0.2.0"
        assert fetch["command"] == ["python", "-m", "cosyserve", "model", "download"]
        target, mirror, url, pins, record = fetch["args"]
        assert (mirror, url, pins) == ("--mirror", "s3://speech/CosyVoice2-0.5B", "--pins")
        assert Path(record).name == download.RECORD
        assert volumes(deployment)["model-pins"]["configMap"] == {"name": "cosyvoice2-pins"}
        assert {"name": "model", "mountPath": target} in fetch["volumeMounts"]
        assert fetch["envFrom"] == [{"secretRef": {"name": "speech-bucket"}}]
    assert "initContainers" not in pod(by_name("Deployment", documents("many"))["orchestrator"])


def test_one_source_of_weights_and_pins_with_every_fetch() -> None:
    for settings in (
        "model.claim=weights,model.hostPath=/srv",
        "model.claim=weights,model.fetch.url=https://host/m,model.fetch.pins=pins",
        "model.fetch.url=https://host/m",
        "model.fetch.pins=pins",
    ):
        assert "model" in refusal("access.insecure=true", settings)


def test_a_service_account_for_each_service_with_its_annotations() -> None:
    annotation = "services.frontend.accountAnnotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/speech"
    accounts = by_name("ServiceAccount", with_set(annotation))
    assert set(accounts) == set(SERVICES)
    assert accounts["frontend"]["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/speech"
    }
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
