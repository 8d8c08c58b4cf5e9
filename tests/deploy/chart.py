"""Sets of values that people give the chart, and how to look at what comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.helm import Manifest, rendered

# What tests/runner passes with and, less any one of them, does not.
CAPABILITIES = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_PTRACE"}

GIVEN: dict[str, Any] = {
    "image": {"repository": "registry.example/bide"},
    "database": {"url": "postgresql://bide:secret@db:5432/bide"},
}
TWO_POOLS = GIVEN | {
    "pools": [
        {"name": "default", "replicas": 5},
        {
            "name": "gpu",
            "slots": 1,
            "podLabels": {"team": "vision"},
            "labels": ["gpu", "cuda12"],
            "nodeSelector": {"accelerator": "l4"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "resources": {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": 1}},
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "volume": {"size": "200Gi", "storageClass": "fast"},
        },
    ]
}
ONE_POD_A_SESSION = GIVEN | {"pools": [{"name": "tight", "isolation": "pod", "replicas": 8}]}
SCALED = GIVEN | {
    "pools": [
        {"name": "default", "slots": 4, "autoscale": {"enabled": True, "min": 0, "max": 20}},
        {"name": "tight", "isolation": "pod", "autoscale": {"enabled": True}},
    ]
}
OWN_SECRETS: dict[str, Any] = {
    "image": {"repository": "registry.example/bide", "tag": "7", "pullSecrets": ["registry"]},
    "database": {"existingSecret": "db", "key": "dsn"},
    "auth": {"existingSecret": "tokens"},
    "model": {"existingSecret": "model", "url": "https://models.example"},
    "blobs": {"existingClaim": "checkpoints"},
    "settings": {"online_window_s": 1800, "lease_s": 60, "runtime": "scripted"},
    "server": {"hosts": ["bide.example"], "nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"name": "keda"}}}]},
}
A_BUCKET: dict[str, Any] = GIVEN | {
    "blobs": {
        "url": "s3://bide-checkpoints/production?region=eu-central-1&endpoint=https://seaweedfs.example:8333",
        "existingSecret": "bucket",
        "secretKey": "secret",
    },
}
A_ROLE: dict[str, Any] = GIVEN | {
    "blobs": {"url": "s3://bide-checkpoints/production?region=eu-central-1"},
    "server": {"serviceAccountAnnotations": {"example.com/role": "checkpoints"}},
}
SETS = {
    "an image and a database": GIVEN,
    "two pools": TWO_POOLS,
    "one pod a session": ONE_POD_A_SESSION,
    "scaled by KEDA": SCALED,
    "secrets of their own": OWN_SECRETS,
    "a bucket": A_BUCKET,
    "a bucket by a role": A_ROLE,
}
every_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


def of(values: dict[str, Any], kind: str, ending: str = "") -> list[Manifest]:
    return [one for one in rendered(values) if one["kind"] == kind and one["metadata"]["name"].endswith(ending)]


def one(values: dict[str, Any], kind: str, ending: str = "") -> Manifest:
    [found] = of(values, kind, ending)
    return found


def pod(workload: Manifest) -> dict[str, Any]:
    return dict(workload["spec"]["template"]["spec"])


def container(workload: Manifest) -> dict[str, Any]:
    [found] = pod(workload)["containers"]
    return dict(found)


def variables(workload: Manifest) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in container(workload)["env"]}
