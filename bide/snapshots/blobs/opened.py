"""Which blob store a URL names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from bide.core.refusals import Refused
from bide.snapshots.blobs.base import BlobStore, check_key
from bide.snapshots.blobs.local import LocalBlobs
from bide.snapshots.blobs.objects import AccessKey, ObjectBlobs, no_credentials

FORMS = "Write file:FOLDER, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME."
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# By these a store is known to be meant for us without a key of its own: roles, and tokens that the machine renews.
ELSEWHERE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
             "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def open_blobs(url: str, key: AccessKey | None = None, environ: Mapping[str, str] = os.environ) -> BlobStore:
    """The store that the URL names: `file:FOLDER`, `s3://BUCKET/PREFIX?endpoint=&region=`, `gs://…` or `az://…`.

    Without `key` the credentials are those that the kind of store usually has, such as AWS_ACCESS_KEY_ID in this
    process's environment. Nothing is made: an absent folder may be a disk that is not mounted. Raises
    `Refused('bad_setting')`.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "file" and rest:
        return LocalBlobs(Path(rest.removeprefix("//")), make=False)
    if scheme not in ("s3", "gs", "az"):
        raise Refused("bad_setting", f"{_shown(url)!r} is not a blob store.", FORMS)
    try:
        parts = urlsplit(url)
        bucket = _bucket(parts)
    except ValueError:
        raise Refused("bad_setting", f"{_shown(url)!r} does not name a bucket and a prefix.", FORMS) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if scheme != "s3":
        if options:
            raise Refused("bad_setting", f"There are no options for {scheme}://.", "Set them by its usual variables.")
        return ObjectBlobs(bucket, {})
    return ObjectBlobs(bucket, _s3(options, key, environ), key)


def _bucket(parts: SplitResult) -> str:
    prefix = parts.path.strip("/")
    if parts.username is not None or parts.password is not None:
        raise Refused(
            "bad_setting",
            "Credentials do not belong in --blobs: it is shown and logged.",
            "Set BIDE_S3_ACCESS_KEY_ID and BIDE_S3_SECRET_ACCESS_KEY.",
        )
    if not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise ValueError(parts.netloc)
    return f"{parts.scheme}://{parts.netloc}" + (f"/{check_key(prefix)}" if prefix else "")


def _s3(options: dict[str, str], key: AccessKey | None, environ: Mapping[str, str]) -> dict[str, str]:
    config = {name: options.pop(name) for name in ("endpoint", "region") if options.get(name)}
    if options:
        raise Refused("bad_setting", f"{next(iter(options))[:80]!r} is no option of s3://.", FORMS)
    endpoint = config.get("endpoint") or next((environ[name] for name in ENDPOINTS if environ.get(name)), "")
    if endpoint:
        config["endpoint"] = _endpoint(endpoint)
    if key is None and endpoint and not any(environ.get(name) for name in ELSEWHERE):
        raise no_credentials()
    return config


def _endpoint(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.username is None:
            _ = parts.port  # raises for one that is none
            return url.rstrip("/")
    except ValueError:
        pass
    raise Refused(
        "bad_setting", "The endpoint of the blob store is not an address.", "Write https://HOST:PORT, nothing more."
    )


def _shown(url: str) -> str:
    """Its beginning, without what could be a secret."""
    return re.sub(r"//[^/@]*@", "//…@", url)[:80]
