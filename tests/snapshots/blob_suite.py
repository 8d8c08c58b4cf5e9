"""What every blob store must do; a test class inherits this and gives a `blobs` fixture."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from bide.snapshots.blobs.base import BlobStore, Missing


class BlobSuite:
    """Inherit, and give the fixture `blobs`: an empty store."""

    def test_what_is_put_comes_back_byte_for_byte(self, blobs: BlobStore) -> None:
        for key, content in (("packs/s/a", os.urandom(3_000_000)), ("packs/s/empty", b""), ("x", b"\0\r\n\xff")):
            assert blobs.put(key, content) is True
            assert blobs.get(key) == content
            assert blobs.has(key)

    def test_a_second_put_never_overwrites_the_first(self, blobs: BlobStore) -> None:
        assert blobs.put("roots/s/1-1", b"first") is True
        assert blobs.put("roots/s/1-1", b"second") is False
        assert blobs.put("roots/s/1-1", b"first") is False
        assert blobs.get("roots/s/1-1") == b"first"

    def test_of_many_racing_for_one_key_exactly_one_wins_and_its_content_stays(self, blobs: BlobStore) -> None:
        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(lambda n: blobs.put("roots/s/2-1", b"%d" % n * 50_000), range(16)))
        assert won.count(True) == 1
        assert blobs.get("roots/s/2-1") == b"%d" % won.index(True) * 50_000

    def test_a_missing_object_is_missing_and_nothing_else(self, blobs: BlobStore) -> None:
        with pytest.raises(Missing) as error:
            blobs.get("packs/s/none")
        assert error.value.key == "packs/s/none"
        assert not blobs.has("packs/s/none")

    def test_a_deleted_object_is_gone_and_its_key_is_free_again(self, blobs: BlobStore) -> None:
        blobs.put("packs/s/a", b"one")
        blobs.delete("packs/s/a")
        assert not blobs.has("packs/s/a")
        assert blobs.put("packs/s/a", b"two")
        assert blobs.get("packs/s/a") == b"two"

    def test_deleting_what_is_not_there_is_fine(self, blobs: BlobStore) -> None:
        blobs.delete("packs/nobody/none")

    def test_listing_gives_each_key_with_the_prefix_once_and_in_order(self, blobs: BlobStore) -> None:
        for key in ("roots/b/1-1", "roots/a/1-2", "roots/a/1-1", "packs/a/x"):
            blobs.put(key, b"")
        assert list(blobs.list("roots/a/")) == ["roots/a/1-1", "roots/a/1-2"]
        assert list(blobs.list("")) == ["packs/a/x", "roots/a/1-1", "roots/a/1-2", "roots/b/1-1"]
        assert list(blobs.list("nothing")) == []

    @pytest.mark.parametrize(
        "key", ["", "/", "/etc/passwd", "a/../b", "..", "a//b", "a/", ".hidden", "a/.x", "a\0b", "a b", "ä", "a\n"]
    )
    def test_a_key_that_could_lead_elsewhere_is_refused_by_every_method(self, blobs: BlobStore, key: str) -> None:
        for action in (lambda: blobs.put(key, b""), lambda: blobs.get(key), lambda: blobs.has(key)):
            with pytest.raises(ValueError, match="is not the key"):
                action()
        with pytest.raises(ValueError, match="is not the key"):
            blobs.delete(key)
