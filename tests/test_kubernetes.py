"""The manifests of `examples/kubernetes`, against the schemas of Kubernetes. No pod runs."""

import copy
from pathlib import Path
from typing import Any, cast

import kubernetes_validate  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest
import yaml

from ipybox.remote.application.settings import find_engine
from ipybox.workspace.writable import WritablePlaces
from tests.servers import ROOT

_validate: Any = kubernetes_validate.validate  # pyright: ignore[reportUnknownMemberType]

OBJECTS: list[Any] = [*yaml.safe_load_all((ROOT / "examples/kubernetes/nodes.yaml").read_text())]
NAMES = [f"{each['kind']}-{each['metadata']['name']}" for each in OBJECTS]
PAGE = (ROOT / "docs/other-machines.md").read_text()
VERSIONS = ("1.31", "1.34", "1.37")


def of_kind(kind: str) -> Any:
    (found,) = (each for each in OBJECTS if each["kind"] == kind)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", range(len(OBJECTS)), ids=NAMES)
def test_each_manifest_is_valid_and_a_misspelled_field_is_not(number: int, version: str) -> None:
    _validate(OBJECTS[number], version, strict=True)

    wrong = copy.deepcopy(OBJECTS[number])
    wrong["metadata"]["title"] = wrong["metadata"].pop("name")
    with pytest.raises(kubernetes_validate.ValidationError):
        _validate(wrong, version, strict=True)


def test_the_application_can_do_no_more_than_exec() -> None:
    rights = {
        (group, resource, verb)
        for rule in of_kind("Role")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert rights == {("", "pods", "get"), ("", "pods/exec", "get"), ("", "pods/exec", "create")}
    accounts = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "ServiceAccount"}
    binding = of_kind("RoleBinding")
    assert [each["name"] for each in binding["subjects"]] == ["ipybox-application"]
    assert binding["roleRef"]["name"] == of_kind("Role")["metadata"]["name"]
    assert accounts == {"ipybox-application", "ipybox-node"}


def test_pods_have_no_token_no_network_and_no_privileges() -> None:
    pods = of_kind("StatefulSet")["spec"]
    pod, policy = pods["template"]["spec"], of_kind("NetworkPolicy")["spec"]
    (container,) = pod["containers"]

    assert not pod["automountServiceAccountToken"]
    assert pod["serviceAccountName"] == "ipybox-node"
    assert pods["selector"]["matchLabels"] == pods["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == pods["template"]["metadata"]["labels"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert not policy.keys() & {"ingress", "egress"}  # so nothing is allowed
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {each["metadata"].get("namespace", "ipybox") for each in OBJECTS} == {"ipybox"}


def test_the_command_of_the_page_names_what_the_manifests_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "ipybox").mkdir()
    (tmp_path / "ipybox/engines.yaml").write_text(text)
    kubectl = tmp_path / "bin/kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(kubectl.parent))
    find_engine("kubernetes", WritablePlaces(tmp_path / "workspace"))  # an invalid entry is an error

    command = cast(list[str], yaml.safe_load(text)["kubernetes"]["command"])
    pods = of_kind("StatefulSet")
    names = {f"{pods['metadata']['name']}-{number}" for number in range(pods["spec"]["replicas"])}
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert names & {*command}
    assert {"-i", f"--namespace={pods['metadata']['namespace']}", f"--container={container['name']}"} <= {*command}
    assert command[-4:] == ["/opt/ipybox/bin/python", "-P", "-m", "ipybox.node"]
