"""What every blob store must do; a test class inherits this and gives a `blobs` fixture."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from bide.snapshots.blobs.base import BlobStore, Missing


class BlobSuite:
    """Inherit, and give the fixture `blobs`: an empty store."""

    raced = "roots/s/2-1"

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
        with ThreadPoolExecutor(16) as threads:
            won = list(threads.map(lambda n: blobs.put(self.raced, b"%d" % n * 50_000), range(16)))
        assert won.count(True) == 1
        assert blobs.get(self.raced) == b"%d" % won.index(True) * 50_000

    @pytest.mark.parametrize("key", ["packs/s/ten", "roots/s/1-1"])
    def test_a_part_of_an_object_is_exactly_that_part(self, blobs: BlobStore, key: str) -> None:
        blobs.put(key, b"0123456789")
        found = {(start, length): blobs.read(key, start, length) for start in (-20, -10, -3, 0, 4, 9, 10, 99)
                 for length in (0, 1, 3, 50)}  # fmt: skip
        for (start, length), part in found.items():
            first = max(0, 10 + start) if start < 0 else start
            assert part == b"0123456789"[first : first + length], (start, length)
        blobs.put(f"{key}.none", b"")
        assert [blobs.read(f"{key}.none", start, 5) for start in (-5, 0, 3)] == [b""] * 3

    def test_the_size_is_that_of_the_content(self, blobs: BlobStore) -> None:
        for size in (0, 1, 70_000):
            blobs.put(f"packs/s/{size}", b"x" * size)
            assert blobs.size(f"packs/s/{size}") == size

    def test_a_missing_object_is_missing_and_nothing_else(self, blobs: BlobStore) -> None:
        for key in ("packs/s/none", "roots/s/9-9"):
            for action in (blobs.get, blobs.size, lambda key: blobs.read(key, 0, 1), lambda key: blobs.read(key, 0, 0)):
                with pytest.raises(Missing) as error:
                    action(key)
                assert error.value.key == key
            assert not blobs.has(key)
        blobs.put("packs/s/a", b"")
        assert not blobs.has("packs/s")

    def test_a_deleted_object_is_gone_and_its_key_is_free_again(self, blobs: BlobStore) -> None:
        blobs.put("packs/s/a", b"one")
        blobs.delete("packs/s/a")
        assert not blobs.has("packs/s/a")
        assert blobs.put("packs/s/a", b"two")
        assert blobs.get("packs/s/a") == b"two"

    def test_deleting_what_is_not_there_is_fine(self, blobs: BlobStore) -> None:
        blobs.delete("packs/nobody/none")

    def test_listing_gives_each_key_with_the_prefix_once(self, blobs: BlobStore) -> None:
        for key in ("roots/b/1-1", "roots/a/1-2", "roots/a/1-1", "packs/a/x"):
            blobs.put(key, b"")
        assert list(blobs.list("roots/a/")) == ["roots/a/1-1", "roots/a/1-2"]
        assert list(blobs.list("roots/a/1-")) == ["roots/a/1-1", "roots/a/1-2"]
        assert list(blobs.list("")) == ["packs/a/x", "roots/a/1-1", "roots/a/1-2", "roots/b/1-1"]
        assert list(blobs.list("nothing")) == []

    def test_a_list_goes_on_behind_any_of_its_keys_and_leaves_none_out(self, blobs: BlobStore) -> None:
        names = ("packs/s-2/1", "packs/s/1", "packs/s/2", "packs/s.x/1", "packs/sa/1", "packs/S/1", "roots/s/1-1")
        for key in names:
            blobs.put(key, b"")
        found = list(blobs.list("packs/"))
        assert sorted(found) == sorted(names[:-1])
        for place, key in enumerate(found):
            assert list(blobs.list("packs/", key)) == found[place + 1 :]

    @pytest.mark.parametrize("prefix", ["../", "/", "a//b", ".staging/", "a/../../b"])
    def test_a_list_never_leads_out_of_the_store(self, blobs: BlobStore, prefix: str) -> None:
        try:
            assert list(blobs.list(prefix)) == []
        except ValueError:
            pass

    @pytest.mark.parametrize(
        "key", ["", "/", "/etc/passwd", "a/../b", "..", "a//b", "a/", ".hidden", "a/.x", "a\0b", "a b", "ä", "a\n"]
    )
    def test_a_key_that_could_lead_elsewhere_is_refused_by_every_method(self, blobs: BlobStore, key: str) -> None:
        for action in (lambda: blobs.put(key, b""), lambda: blobs.get(key), lambda: blobs.has(key),
                       lambda: blobs.size(key), lambda: blobs.read(key, 0, 1)):  # fmt: skip
            with pytest.raises(ValueError, match="is not the key"):
                action()
        with pytest.raises(ValueError, match="is not the key"):
            blobs.delete(key)
