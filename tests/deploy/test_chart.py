"""What people would lose if the chart placed the fleet wrongly. Helm renders it; Kubernetes' own schemas judge it."""

from __future__ import annotations

import base64
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from bide import __version__
from bide.core.ids import NAME
from bide.core.limits import DRAIN_LATE_S, RUNNER_STOP_S, SHUTDOWN_S
from bide.server.config import load
from bide.snapshots.blobs.objects import AccessKey, ObjectBlobs
from bide.snapshots.blobs.opened import open_blobs
from tests.deploy.chart import (
    A_BUCKET,
    A_ROLE,
    GIVEN,
    ONE_POD_A_SESSION,
    OWN_SECRETS,
    SCALED,
    TWO_POOLS,
    container,
    every_set,
    of,
    one,
    pod,
    variables,
)
from tests.deploy.commands import checked
from tests.deploy.helm import CHART, NoChart, lint, rendered

KEDA = json.loads((Path(__file__).parent / "schemas" / "keda-scaledobject.json").read_text())
KUBERNETES = "1.33"  # the oldest with all that the default layout needs
OLD_KUBERNETES = "1.29"  # the oldest that the chart takes, for the layout of one pod a session


def strict(schema: Any) -> Any:
    """The same schema, that takes no field it does not name."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {} if "properties" not in schema or "additionalProperties" in schema else {"additionalProperties": False}
    return {name: strict(value) for name, value in schema.items()} | closed


# -- it is what Kubernetes and KEDA take --------------------------------------------------------------------------------


@every_set
def test_kubernetes_and_keda_take_every_manifest(values: dict[str, Any]) -> None:
    version = OLD_KUBERNETES if values is ONE_POD_A_SESSION else KUBERNETES
    for manifest in rendered(values):
        if manifest["apiVersion"].startswith("keda.sh/"):
            jsonschema.Draft202012Validator(strict(KEDA)).validate(manifest)
        else:
            kubernetes_validate.validate(manifest, version, strict=True)


@every_set
def test_helm_finds_nothing_to_say_about_the_chart(values: dict[str, Any]) -> None:
    report = lint(values)
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


def test_the_chart_is_of_the_release_that_it_places() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_a_misspelt_field_does_not_pass_the_schemas() -> None:
    workload = json.loads(json.dumps(one(GIVEN, "StatefulSet")))
    workload["spec"]["template"]["spec"]["terminationGracePeriodSecs"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(workload, KUBERNETES, strict=True)
    scaler = json.loads(json.dumps(of(SCALED, "ScaledObject")[0]))
    scaler["spec"]["maxReplicas"] = 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(strict(KEDA)).validate(scaler)


@pytest.mark.parametrize("release", ["night", "bide", "a-release-name-that-is-as-long-as-helm-takes-it-really-53"[:53]])
def test_long_names_stay_within_what_kubernetes_and_bide_take(release: str) -> None:
    values = GIVEN | {"pools": [{"name": "sixteen-letters-"[:15] + "x", "replicas": 1000}]}
    for manifest in rendered(values, release):
        name = manifest["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
        assert len(name) <= 63
        if manifest["kind"] == "StatefulSet":
            assert len(f"{name}-1234567890") <= 63, "the label of its revision"
            assert NAME.fullmatch(f"{name}-999")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "bide publishes no image"),
        ({"image": {"repository": "x"}}, "need a PostgreSQL database"),
        (GIVEN | {"database": {"url": "mysql://db"}}, "url"),
        (GIVEN | {"image": {"repositry": "x"}}, "repositry"),
        (GIVEN | {"pools": [{"name": "Upper"}]}, "name"),
        (GIVEN | {"pools": [{"name": "a"}, {"name": "a"}]}, "Two pools have the same name."),
        (GIVEN | {"pools": [{"name": "a", "isolation": "pod", "slots": 2}]}, "it can only have slots: 1"),
        (GIVEN | {"pools": [{"name": "a", "autoscale": {"min": 3, "max": 2}}]}, "autoscale.min above autoscale.max"),
        (GIVEN | {"blobs": {"accessModes": ["ReadWriteOnce"]}}, "must hold ReadWriteMany"),
        (GIVEN | {"settings": {"owner_token": "x"}}, "owner_token"),
        (GIVEN | {"settings": {"s3_secret_access_key": "x"}}, "s3_secret_access_key"),
        (GIVEN | {"blobs": {"existingSecret": "bucket"}}, "name the bucket in blobs.url"),
        (GIVEN | {"blobs": {"url": "gs://b", "existingSecret": "bucket"}}, "only a bucket named by s3://"),
        (GIVEN | {"blobs": {"url": "s3://b", "existingClaim": "c"}}, "checkpoints lie in one of them"),
        (GIVEN | {"blobs": {"url": "s3://id:secret@b"}}, "url"),
    ],
)
def test_values_that_cannot_work_are_refused_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NoChart, match=re.escape(sentence)):
        rendered(values)


# -- what runs in the pods ----------------------------------------------------------------------------------------------


@every_set
def test_every_pod_starts_with_a_command_that_bide_has(values: dict[str, Any]) -> None:
    for workload in of(values, "StatefulSet") + of(values, "Deployment"):
        [*wrapper, program] = container(workload)["command"]
        assert (wrapper, program) == (
            ["tini", "--"],
            "bide",
        )  # as process 1, bide would have to reap what sessions leave
        checked(["bide", *container(workload)["args"]])


@every_set
def test_the_servers_take_the_settings_they_are_given(values: dict[str, Any]) -> None:
    deployment = one(values, "Deployment")
    given = dict(one(values, "ConfigMap")["data"])
    given |= {name: each.get("value", f"{name}-{'x' * 40}") for name, each in variables(deployment).items()}
    given["BIDE_MASTER_KEY"] = "0f" * 32
    config = load({}, given)
    assert config.blobs == values.get("blobs", {}).get("url", "file:/var/lib/bide/blobs")
    assert (config.access_key is not None) == (values is A_BUCKET)
    assert (config.owner_token, config.enrolment_token) == (given["BIDE_OWNER_TOKEN"], given["BIDE_ENROLMENT_TOKEN"])
    if values is OWN_SECRETS:
        assert (config.lease_s, config.defaults["online_window_s"], config.defaults["runtime"]) == (
            60,
            1800,
            "scripted",
        )


@every_set
def test_the_servers_answer_under_every_name_by_which_they_are_reached(values: dict[str, Any]) -> None:
    hosts = load({}, {"BIDE_HOSTS": one(values, "ConfigMap")["data"]["BIDE_HOSTS"]}).hosts
    urls = {variables(runner)["BIDE_SERVER"]["value"] for runner in of(values, "StatefulSet")}
    urls |= {each["metadata"]["url"] for scaler in of(values, "ScaledObject") for each in scaler["spec"]["triggers"]}
    service = one(values, "Service", "-server")["metadata"]["name"]
    for url in urls:
        assert url.removesuffix("/metrics") == f"http://{service}.fleet.svc:8811"
    assert {f"{service}.fleet.svc", *values.get("server", {}).get("hosts", [])} <= set(hosts)


@every_set
def test_the_names_of_services_are_not_taken_for_settings(values: dict[str, Any]) -> None:
    for workload in of(values, "StatefulSet") + of(values, "Deployment"):
        assert pod(workload)["enableServiceLinks"] is False


@every_set
def test_nobody_in_a_pod_can_speak_to_kubernetes(values: dict[str, Any]) -> None:
    for workload in of(values, "StatefulSet") + of(values, "Deployment"):
        assert pod(workload)["automountServiceAccountToken"] is False


@every_set
def test_no_secret_stands_where_everybody_can_read_it(values: dict[str, Any]) -> None:
    open_to_all = json.dumps([each for each in rendered(values) if each["kind"] != "Secret"])
    assert "secret@db" not in open_to_all
    for workload in of(values, "StatefulSet") + of(values, "Deployment"):
        for name, each in variables(workload).items():
            if name.endswith(("_TOKEN", "_KEY", "_DATABASE")):
                assert "secretKeyRef" in each["valueFrom"], name


def test_a_runner_holds_a_token_that_only_lets_runners_come_and_go() -> None:
    reference = variables(one(GIVEN, "StatefulSet"))["BIDE_TOKEN"]["valueFrom"]["secretKeyRef"]
    servers = variables(one(GIVEN, "Deployment"))
    assert reference == servers["BIDE_ENROLMENT_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert reference != servers["BIDE_OWNER_TOKEN"]["valueFrom"]["secretKeyRef"]


def test_tokens_are_made_when_none_are_given_and_kept_when_the_release_goes() -> None:
    secret = one(GIVEN, "Secret", "-tokens")
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    tokens = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert len(set(tokens.values())) == 3
    names = {
        "BIDE_OWNER_TOKEN": "owner-token",
        "BIDE_ENROLMENT_TOKEN": "enrolment-token",
        "BIDE_MASTER_KEY": "master-key",
    }
    load({}, {name: tokens[key] for name, key in names.items()})
    assert of(OWN_SECRETS, "Secret") == []


def test_secrets_of_their_own_are_used_everywhere() -> None:
    server, runner = variables(one(OWN_SECRETS, "Deployment")), variables(one(OWN_SECRETS, "StatefulSet"))
    assert server["BIDE_DATABASE"]["valueFrom"]["secretKeyRef"] == {"name": "db", "key": "dsn"}
    assert runner["BIDE_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "tokens", "key": "enrolment-token"}
    assert runner["ANTHROPIC_API_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "model"
    assert runner["BIDE_MODEL_URL"]["value"] == "https://models.example"
    assert pod(one(OWN_SECRETS, "StatefulSet"))["imagePullSecrets"] == [{"name": "registry"}]


def test_the_access_key_of_a_bucket_reaches_the_servers_and_nobody_else() -> None:
    server = variables(one(A_BUCKET, "Deployment"))
    assert server["BIDE_S3_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"] == {"name": "bucket", "key": "access-key-id"}
    assert server["BIDE_S3_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "bucket", "key": "secret"}
    runner = one(A_BUCKET, "StatefulSet")
    assert not [name for name in variables(runner) if "S3" in name]
    accounts = {each["metadata"]["name"]: each["metadata"] for each in of(A_ROLE, "ServiceAccount")}
    servers, runners = (pod(one(A_ROLE, kind))["serviceAccountName"] for kind in ("Deployment", "StatefulSet"))
    assert accounts[servers]["annotations"] == {"example.com/role": "checkpoints"}
    assert "annotations" not in accounts[runners], "a session must not get what the servers may"


@pytest.mark.parametrize("values", [A_BUCKET, A_ROLE])
def test_servers_with_a_bucket_share_no_volume(values: dict[str, Any]) -> None:
    assert of(values, "PersistentVolumeClaim") == []
    workload = one(values, "Deployment")
    assert {each["name"] for each in pod(workload)["volumes"]} == {"home", "tmp"}
    assert {each["name"] for each in container(workload)["volumeMounts"]} == {"home", "tmp"}
    store = open_blobs(one(values, "ConfigMap")["data"]["BIDE_BLOBS"], AccessKey(id="i", secret="s"))
    assert isinstance(store, ObjectBlobs)
    assert store.signs, "runners reach it by signed addresses"


# -- nothing is lost ----------------------------------------------------------------------------------------------------


@every_set
def test_the_disk_of_a_runner_outlives_its_pod(values: dict[str, Any]) -> None:
    for runner in of(values, "StatefulSet"):
        [claim] = runner["spec"]["volumeClaimTemplates"]
        kept = runner["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert kept == {"whenDeleted": "Retain", "whenScaled": "Retain"}
        mounts = {each["name"]: each["mountPath"] for each in container(runner)["volumeMounts"]}
        arguments = container(runner)["args"]
        assert mounts[claim["metadata"]["name"]] == arguments[arguments.index("--root") + 1]


@every_set
def test_a_pod_that_comes_back_is_the_same_runner(values: dict[str, Any]) -> None:
    for runner in of(values, "StatefulSet"):
        arguments = container(runner)["args"]
        assert arguments[arguments.index("--name") + 1] == "$(POD_NAME)"
        assert variables(runner)["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


@pytest.mark.parametrize("seconds", [1, 600, 3600])
def test_a_runner_has_time_to_drain_before_it_is_killed(seconds: int) -> None:
    runner = one(GIVEN | {"runners": {"drainSeconds": seconds}}, "StatefulSet")
    [shell, flag, line] = container(runner)["lifecycle"]["preStop"]["exec"]["command"]
    assert (shell, flag) == ("sh", "-c")
    words = shlex.split(line.removeprefix("exec "))
    assert words == ["bide", "drain", "$POD_NAME", "--deadline", f"{seconds}s"]
    checked(words)
    assert pod(runner)["terminationGracePeriodSeconds"] > seconds + DRAIN_LATE_S + RUNNER_STOP_S


@every_set
def test_two_servers_are_never_taken_down_at_once(values: dict[str, Any]) -> None:
    deployment = one(values, "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = one(values, "PodDisruptionBudget", "-server")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


@every_set
def test_a_node_that_is_emptied_takes_one_runner_of_a_pool_at_a_time(values: dict[str, Any]) -> None:
    runners = {each["metadata"]["name"]: each for each in of(values, "StatefulSet")}
    budgets = [each for each in of(values, "PodDisruptionBudget") if each["metadata"]["name"] in runners]
    assert len(budgets) == len(runners)
    for budget in budgets:
        runner = runners[budget["metadata"]["name"]]
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"]["matchLabels"] == runner["spec"]["selector"]["matchLabels"]


def test_requests_reach_no_server_that_is_closing() -> None:
    server = container(one(GIVEN, "Deployment"))
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert server["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert pod(one(GIVEN, "Deployment"))["terminationGracePeriodSeconds"] > 5 + 2 * SHUTDOWN_S


def test_checkpoints_stay_when_the_release_goes_and_every_server_reaches_them() -> None:
    claim = one(GIVEN, "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    [volume] = [each for each in pod(one(GIVEN, "Deployment"))["volumes"] if each["name"] == "blobs"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    [volume] = [each for each in pod(one(OWN_SECRETS, "Deployment"))["volumes"] if each["name"] == "blobs"]
    assert volume["persistentVolumeClaim"]["claimName"] == "checkpoints"
    assert of(OWN_SECRETS, "PersistentVolumeClaim") == []


def test_a_changed_setting_reaches_the_servers() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return str(one(values, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    assert checksum(GIVEN) == checksum(TWO_POOLS)
    assert checksum(GIVEN) != checksum(GIVEN | {"settings": {"lease_s": 30}})
