"""The files of the web page, as they are served: read once, each with its type, under addresses that hold their content.

An address never means two contents, so browsers keep the files for good; only the first document is asked for again.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from msgspec import Struct

START = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# What the modules call each other, and where that is.
MODULES = {
    "preact": "vendor/preact.mjs",
    "preact/hooks": "vendor/hooks.mjs",
    "@preact/signals": "vendor/signals.mjs",
    "@preact/signals-core": "vendor/signals-core.mjs",
    "htm": "vendor/htm.mjs",
}
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
# No markup out of text, anywhere: a script that tries is stopped by the browser.
POLICY = (
    "default-src 'none'; script-src 'self' 'sha256-{imports}'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_MARK = re.compile("{{(base|imports|modules)}}")


class File(Struct, frozen=True, kw_only=True):
    """One file and its media type."""

    body: bytes
    media_type: str


class Page(Struct, frozen=True, kw_only=True):
    """The whole page: its first document, and its other files by name. `digest` is of all of them."""

    start: bytes
    headers: dict[str, str]
    digest: str
    files: dict[str, File]


def read() -> Page:
    """The page out of the package."""
    found = dict(_walk(files("bide.server") / "web", ""))
    template = found.pop(START)
    served = {
        name: File(body=body, media_type=TYPES[suffix])
        for name, body in sorted(found.items())
        if (suffix := name[name.rfind(".") :]) in TYPES
    }
    whole = hashlib.sha256(template)
    for name, file in served.items():
        whole.update(b"%b\0%d\0%b" % (name.encode(), len(file.body), file.body))
    digest = whole.hexdigest()[:16]
    base = f"/web/{digest}/"
    imports = msgspec.json.encode({"imports": {name: base + path for name, path in MODULES.items()}}).decode()
    modules = "\n".join(f'    <link rel="modulepreload" href="{base}{name}">' for name in served if name.endswith("js"))
    marks = {"base": base, "imports": imports, "modules": modules.strip()}
    start = _MARK.sub(lambda found: marks[found[1]], template.decode())
    policy = POLICY.format(imports=base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode())
    headers = {"content-security-policy": policy, "cache-control": "no-cache", "etag": f'"{digest}"'}
    return Page(start=start.encode(), headers=HEADERS | headers, digest=digest, files=served)


def _walk(folder: Traversable, under: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{under}{entry.name}/")
        else:
            yield under + entry.name, entry.read_bytes()
