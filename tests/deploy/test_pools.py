"""What people would lose if pools were scaled, placed or shut in wrongly."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from bide.core.limits import LEASE_S, POLL_S, SLOTS_DEFAULT
from bide.core.placement import Runner
from bide.server.floors import floors
from tests.deploy.chart import (
    CAPABILITIES,
    GIVEN,
    ONE_POD_A_SESSION,
    OWN_SECRETS,
    SCALED,
    TWO_POOLS,
    container,
    of,
    one,
    pod,
    variables,
)
from tests.deploy.helm import Manifest, notes

# -- scaling ------------------------------------------------------------------------------------------------------------


def wanted(scaler: Manifest, **metrics: float) -> int:
    """How many runners KEDA asks for, by its formula of three triggers: `a > b ? a : b`."""
    how = scaler["spec"]["advanced"]["scalingModifiers"]
    assert how["metricType"] == "AverageValue"
    assert sorted(metrics) == sorted(each["name"] for each in scaler["spec"]["triggers"])
    formula = re.fullmatch(r"(?P<a>[\w+* ]+) > (?P<b>[\w+* ]+) \? (?P=a) : (?P=b)", how["formula"])
    assert formula, how["formula"]
    value = max(eval(formula[each], {"__builtins__": {}}, metrics) for each in ("a", "b"))
    least, most = scaler["spec"]["minReplicaCount"], scaler["spec"]["maxReplicaCount"]
    return int(min(max(math.ceil(value / float(how["target"])), least), most))


@pytest.mark.parametrize("pool", [0, 1])
def test_a_busy_runner_is_never_scaled_away(pool: int) -> None:
    scaler = of(SCALED, "ScaledObject")[pool]
    slots = int(scaler["spec"]["advanced"]["scalingModifiers"]["target"])
    for busiest in range(1, scaler["spec"]["maxReplicaCount"] + 1):  # a StatefulSet takes the highest pods away first
        busy = Runner(id="", name=f"night-bide-runner-x-{busiest - 1}", pool="x", slots=slots, slots_free=slots - 1)
        assert wanted(scaler, queued=0, held=1, stay=floors([busy], 0.0, POLL_S, LEASE_S)["x"]) >= busiest


def test_there_is_a_slot_for_every_session_that_waits_or_works_up_to_the_bound() -> None:
    scaler = of(SCALED, "ScaledObject")[0]
    assert wanted(scaler, queued=0, held=0, stay=0) == 0
    assert wanted(scaler, queued=1, held=0, stay=0) == 1
    assert wanted(scaler, queued=5, held=8, stay=8) == 4
    assert wanted(scaler, queued=999, held=8, stay=8) == 20


def test_each_pool_is_scaled_by_its_own_sessions() -> None:
    for scaler, runner in zip(of(SCALED, "ScaledObject"), of(SCALED, "StatefulSet"), strict=True):
        assert scaler["spec"]["scaleTargetRef"] == {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": runner["metadata"]["name"],
        }  # fmt: skip
        arguments = container(runner)["args"]
        pool, slots = arguments[arguments.index("--pool") + 1], arguments[arguments.index("--slots") + 1]
        assert scaler["spec"]["advanced"]["scalingModifiers"]["target"] == slots
        found = {each["name"]: each for each in scaler["spec"]["triggers"]}
        for name, metric in (
            ("queued", "bide_sessions_queued"), ("held", "bide_sessions_held"), ("stay", "bide_runners_floor"),
        ):  # fmt: skip
            trigger = found[name]
            assert (trigger["type"], trigger["metricType"]) == ("metrics-api", "AverageValue")
            assert trigger["metadata"].pop("url").endswith("/metrics")
            assert trigger["metadata"] == {
                "format": "prometheus", "valueLocation": f'{metric}{{pool="{pool}"}}', "targetValue": slots,
            }  # fmt: skip


def test_an_upgrade_does_not_undo_what_the_scaler_decided() -> None:
    assert all("replicas" not in runner["spec"] for runner in of(SCALED, "StatefulSet"))
    assert of(GIVEN, "ScaledObject") == []
    assert one(TWO_POOLS, "StatefulSet", "-default")["spec"]["replicas"] == 5


# -- pools and sandboxes ------------------------------------------------------------------------------------------------


def test_a_pool_gets_the_machines_that_it_asks_for_and_no_other_pool_does() -> None:
    gpu, other = one(TWO_POOLS, "StatefulSet", "-gpu"), one(TWO_POOLS, "StatefulSet", "-default")
    assert pod(gpu)["nodeSelector"] == {"accelerator": "l4"}
    assert pod(gpu)["tolerations"][0]["key"] == "gpu"
    assert container(gpu)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert gpu["spec"]["template"]["metadata"]["labels"]["team"] == "vision"
    arguments = container(gpu)["args"]
    assert [arguments[at + 1] for at, word in enumerate(arguments) if word == "--label"] == ["gpu", "cuda12"]
    assert variables(gpu)["HTTPS_PROXY"]["value"] == "http://proxy:3128"
    [claim] = gpu["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "200Gi"
    assert "nodeSelector" not in pod(other)
    assert "limits" not in container(other)["resources"]
    assert container(other)["args"][container(other)["args"].index("--slots") + 1] == str(SLOTS_DEFAULT)


def test_a_sandbox_can_be_made_inside_the_pod_and_the_nodes_root_is_not_the_pods() -> None:
    runner = one(GIVEN, "StatefulSet")
    security = container(runner)["securityContext"]
    assert pod(runner)["hostUsers"] is False
    assert security["procMount"] == "Unmasked"
    assert security["seccompProfile"] == {"type": "Unconfined"}
    assert security["appArmorProfile"] == {"type": "Unconfined"}
    assert "privileged" not in security
    assert set(security["capabilities"]["add"]) == CAPABILITIES
    assert "--isolation" not in container(runner)["args"]


def test_a_cluster_without_user_namespaces_gives_each_session_a_pod_of_its_own() -> None:
    runner = one(ONE_POD_A_SESSION, "StatefulSet")
    arguments, security = container(runner)["args"], container(runner)["securityContext"]
    assert arguments[arguments.index("--slots") + 1] == "1"
    assert arguments[arguments.index("--isolation") + 1] == "none"
    assert arguments[arguments.index("--root") + 1] == "/workspace"
    assert {"name": "sessions", "mountPath": "/workspace"} in container(runner)["volumeMounts"]
    assert "hostUsers" not in pod(runner)
    assert not {"procMount", "appArmorProfile", "privileged"} & set(security)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert set(security["capabilities"]["add"]) == CAPABILITIES


@pytest.mark.parametrize("values", [GIVEN, ONE_POD_A_SESSION], ids=["sandboxes", "one pod a session"])
def test_a_session_runs_as_another_user_than_the_runner_that_holds_the_secrets(values: dict[str, Any]) -> None:
    security = container(one(values, "StatefulSet"))["securityContext"]
    assert security["runAsUser"] == 0  # only then does the runner give sessions a uid of their own
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"]["drop"] == ["ALL"]


def test_the_servers_need_no_rights_at_all() -> None:
    deployment = one(GIVEN, "Deployment")
    security = container(deployment)["securityContext"]
    assert pod(deployment)["securityContext"]["runAsNonRoot"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True


def test_only_runners_and_whoever_is_named_reach_the_servers_and_nobody_a_runner() -> None:
    server, runner = one(OWN_SECRETS, "NetworkPolicy", "-server"), one(OWN_SECRETS, "NetworkPolicy", "-runner")
    [rule] = server["spec"]["ingress"]
    assert [sorted(peer) for peer in rule["from"]] == [["podSelector"], ["namespaceSelector"]]
    labels = one(OWN_SECRETS, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert runner["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert (runner["spec"]["policyTypes"], runner["spec"]["ingress"]) == (["Ingress"], [])
    assert of(GIVEN, "NetworkPolicy") == []


def test_the_notes_say_how_to_get_in_and_what_is_missing() -> None:
    assert "port-forward service/night-bide-server 8811" in notes(GIVEN)
    assert '{{index .data "owner-token" | base64decode}}' in notes(GIVEN)
    assert "model.existingSecret" in notes(GIVEN)
    assert "model.existingSecret" not in notes(OWN_SECRETS)
