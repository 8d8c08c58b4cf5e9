"""A blob store in a bucket of S3, or of what speaks like it; also of Google Cloud Storage and Azure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar

import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import ObjectStore, S3Store, from_url

from bide.core import limits
from bide.core.refusals import Refused, Unavailable
from bide.snapshots.blobs.base import Missing, check_key, folder_of

T = TypeVar("T")
Method = Literal["GET", "PUT"]
WHAT = "the blob store"

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"(?:<Code>|\(code: )(\w+)")
_KIND = re.compile(r"kind: (Timeout|Connect)\b")
_METADATA = ("169.254.169.254", "169.254.170.2")  # where machines in a cloud are told theirs
_ABSENT = ("NoSuchKey", "BlobNotFound")
# What the store says of settings that cannot work -> what is wrong.
_SETTINGS = {
    "NoSuchBucket": "there is no such bucket",
    "ContainerNotFound": "there is no such container",
    "InvalidBucketName": "the name of the bucket is not a valid one",
    "InvalidAccessKeyId": "it does not know the access key",
    "SignatureDoesNotMatch": "the secret access key is not the right one",
    "ExpiredToken": "the credentials have expired",
    "AccessDenied": "the credentials do not allow it",
    "AuthorizationHeaderMalformed": "the region is not the bucket's",
    "PermanentRedirect": "the region is not the bucket's",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
}
_STATUSES = {
    "301": _SETTINGS["PermanentRedirect"],
    "401": "it takes no credentials from here",
    "403": _SETTINGS["AccessDenied"],
}


class AccessKey(Struct, frozen=True, kw_only=True):
    """What opens a bucket."""

    id: str
    secret: str


class ObjectBlobs:
    """Objects in the bucket and below the prefix that `url` names, such as `s3://bucket/prefix`.

    `config` is obstore's for that kind of store; what it lacks is taken from the usual variables of that kind.
    Creating is one conditional request, so exactly one of many wins. Nothing is tried again here: see `Retrying`.
    Settings that the store refuses are `Refused('bad_setting')`, and no answer of it is taken for a loss.
    Safe to share between threads.
    """

    def __init__(
        self,
        url: str,
        config: Mapping[str, Any],
        key: AccessKey | None = None,
        transfer_s: float = limits.OBJECT_S,
        ask_s: float = limits.OBJECT_ASK_S,
    ) -> None:
        def connect(timeout_s: float) -> ObjectStore:
            options = {
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=min(timeout_s, limits.CONNECT_S)),
                "allow_http": str(config.get("endpoint", "")).startswith("http:"),
            }
            # A key in `config` would be mixed with what else of a key stands in the environment.
            given = None if key is None else lambda: {"access_key_id": key.id, "secret_access_key": key.secret,
                                                      "expires_at": None}  # fmt: skip
            return from_url(  # type: ignore[call-overload,no-any-return]
                url, config=dict(config), client_options=options, retry_config={"max_retries": 0},
                credential_provider=given,
            )  # fmt: skip

        try:
            self._whole, self._asked = connect(transfer_s), connect(ask_s)
        except (BaseError, ValueError) as error:
            words = str(error).partition("\n")[0][:200]
            raise Refused("bad_setting", f"The blob store {url[:200]} cannot be used: {words}.") from None

    def put(self, key: str, content: bytes) -> bool:
        check_key(key)
        try:
            obstore.put(self._whole, key, content, mode="create", use_multipart=False)
        except AlreadyExistsError as taken:
            if _found(_STATUS, taken) == "409":  # another one is being put this moment, and may still fail
                raise Unavailable(WHAT, f"{key} is being written by somebody else") from None
            return False
        except (BaseError, OSError) as error:
            raise _translated(error, key) from None
        return True

    def get(self, key: str) -> bytes:
        check_key(key)
        return self._tried(lambda: bytes(obstore.get(self._whole, key).bytes()), key)

    def read(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            self.size(key)
            return b""
        try:
            return self._tried(lambda: self._range(check_key(key), start, length), key)
        except _PastEnd:
            return b""

    def size(self, key: str) -> int:
        return self._tried(lambda: self._size(check_key(key)), key)

    def has(self, key: str) -> bool:
        try:
            self.size(key)
        except Missing:
            return False
        return True

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Pages are asked for as they are needed. Stores sort differently: most by bytes, SeaweedFS by folders."""
        pages = iter(
            obstore.list(self._asked, folder_of(prefix) or None, offset=after or None, chunk_size=limits.LIST_MAX)
        )
        while page := self._tried(lambda: next(pages, None), prefix):
            yield from (one["path"] for one in page if one["path"].startswith(prefix))

    def delete(self, key: str) -> None:
        check_key(key)
        try:
            obstore.delete(self._asked, key)
        except (BaseError, OSError) as error:
            found = _translated(error, key)
            if not isinstance(found, Missing):
                raise found from None

    @property
    def signs(self) -> bool:
        """Whether `sign` makes URLs that need nothing but themselves; those of the other kinds want headers of their own."""
        return isinstance(self._asked, S3Store)

    def sign(self, method: Method, keys: Iterable[str], seconds: float) -> dict[str, str]:
        """For each key a URL that allows this one method on this one object for so long, to whoever has it."""
        named = [check_key(key) for key in keys]
        assert isinstance(self._asked, S3Store)
        try:
            urls = obstore.sign(self._asked, method, named, timedelta(seconds=seconds))
        except (BaseError, OSError) as error:
            raise _translated(error, "") from None
        return dict(zip(named, urls, strict=True))

    def _size(self, key: str) -> int:
        try:
            return int(obstore.head(self._asked, key)["size"])
        except FileNotFoundError:  # an answer without a body does not say what is missing, the object or the bucket
            return int(obstore.get(self._asked, key).meta["size"])

    def _range(self, key: str, start: int, length: int) -> bytes:
        if start >= 0:
            return bytes(obstore.get_range(self._whole, key, start=start, length=length))
        try:
            found = obstore.get(self._whole, key, options={"range": {"suffix": -start}})
            return bytes(found.bytes())[:length]
        except NotSupportedError:
            start = max(0, self._size(key) + start)
            return bytes(obstore.get_range(self._whole, key, start=start, length=length))

    def _tried(self, action: Callable[[], T], key: str) -> T:
        try:
            return action()
        except (BaseError, OSError) as error:
            raise _translated(error, key) from None


class _PastEnd(Exception):
    """A range that begins behind the object's end."""


def no_credentials() -> Refused:
    """Neither given, nor where they usually are."""
    return Refused(
        "bad_setting",
        "There are no credentials for the blob store.",
        "Set BIDE_S3_ACCESS_KEY_ID and BIDE_S3_SECRET_ACCESS_KEY.",
    )


def _translated(error: Exception, key: str) -> Exception:
    """What the error means. Its own words hold addresses, and some of them credentials: none of them go on."""
    status, code = _found(_STATUS, error), _found(_CODE, error)
    if isinstance(error, FileNotFoundError) and code in _ABSENT:
        return Missing(key)
    if any(f"//{address}/" in str(error) for address in _METADATA):
        return no_credentials()
    if status == "416":
        return _PastEnd()
    wrong = _SETTINGS.get(code) or (_STATUSES.get(status) if not isinstance(error, FileNotFoundError) else None)
    if wrong:
        return Refused(
            "bad_setting",
            f"The blob store refuses its settings: {wrong}.",
            "Compare --blobs and the credentials with the bucket's; `bide doctor` tries them.",
        )
    if status:
        return Unavailable(WHAT, f"it answered {' '.join(filter(None, (status, code)))}")
    whys = {"Timeout": "it did not answer in time", "Connect": "nobody can be reached at its address"}
    return Unavailable(WHAT, whys.get(_found(_KIND, error), "the connection to it failed"))


def _found(pattern: re.Pattern[str], error: Exception) -> str:
    found = pattern.search(str(error))
    return found.group(1) if found else ""
