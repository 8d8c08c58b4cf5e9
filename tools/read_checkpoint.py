"""Restores a checkpoint without bide, as docs/reference/checkpoint-format.md says: read_checkpoint.py BLOBS KEYS.json TARGET.

Each tree goes to TARGET/<its name>, a new folder. What cannot be read is named on stderr, with exit code 1; the rest is made."""

import json
import os
import struct
import sys
from base64 import b64decode
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from zstandard import ZstdError, decompress

FOLDER, NEW_FILE = os.O_DIRECTORY | os.O_NOFOLLOW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class Checkpoint:
    def __init__(self, blobs: Path, keys: dict[str, Any]) -> None:
        self.name_key, self.losses = b64decode(keys["chunks"]), list[str]()
        self.places = defaultdict[bytes, list[tuple[Any, ...]]](list)  # of each chunk: frames, place in each, length
        self.last: tuple[Any, bytes] = (None, b"")  # the frame unpacked last: neighbours lie together
        sealed, cipher = (blobs / "roots" / keys["root"]).read_bytes(), AESGCM(b64decode(keys["key"]))
        if sealed[:6] != b"BDRT\0\2":
            raise SystemExit(f"{keys['root']} is not a root of version 2")
        self.root = msgspec.msgpack.decode(decompress(cipher.decrypt(bytes(12), sealed[6:], keys["root"].encode())))
        for ident, family in (row[:2] for row in self.root["packs"]):
            try:
                self.add_pack(ident, blobs / "packs" / family / ident.hex(), keys["packs"][ident.hex()])
            except (OSError, KeyError, ValueError, InvalidTag) as why:
                self.losses.append(f"pack {ident.hex()}: {why!r}")

    def add_pack(self, ident: bytes, path: Path, key: str) -> None:
        pack, cipher = path.read_bytes(), AESGCM(b64decode(key))
        if pack[:6] != b"BDPK\0\2" or pack[-4:] != b"BDPK":
            raise ValueError("not a pack of version 2")
        footer = pack[-8 - int.from_bytes(pack[-8:-4], "big") : -8]
        frames, ids, lengths = msgspec.msgpack.decode(decompress(cipher.decrypt(b"\xff" * 12, footer, ident)))[:3]
        chunks = zip(range(0, len(ids), 32), struct.unpack(f"<{len(lengths) // 4}I", lengths), strict=True)
        for number, (offset, stored, _, packed, count) in enumerate(row[:5] for row in frames):
            frame, place = (path, cipher, ident, number, offset, stored, packed), 0
            for at, length in (next(chunks) for _ in range(count)):
                self.places[ids[at : at + 32]].append((frame, place, length))
                place += length

    def chunk(self, name: bytes) -> bytes | None:
        for frame, place, length in self.places.get(name, ()):
            if frame is not self.last[0]:
                path, cipher, ident, number, offset, stored, packed = frame
                with path.open("rb") as file:
                    body = os.pread(file.fileno(), stored, offset)
                try:
                    raw = cipher.decrypt(number.to_bytes(12, "big"), body, ident)
                    self.last = (frame, decompress(raw) if packed else raw)
                except (InvalidTag, ZstdError):
                    continue
            content = self.last[1][place : place + length]
            if blake3(content, key=self.name_key).digest() == name:
                return content
        return None


class Tree:
    """On its way into a new folder. Names are followed one by one by handle, so that no path is too long."""

    def __init__(self, checkpoint: Checkpoint, tree: dict[str, Any], top: Path) -> None:
        self.checkpoint, self.tree, self.top = checkpoint, tree, top
        self.named, self.files, done = {b""}, set[bytes](), list[tuple[Any, ...]]()
        top.mkdir(mode=0o700, parents=True)
        for first, name, cut, *_ in tree["segments"]:
            parts = [checkpoint.chunk((cut or name)[at : at + 32]) for at in range(0, len(cut or name), 32)]
            if not (segment := b"".join(filter(None, parts)) if all(parts) else b""):
                self.lose(b"from %b on" % first, "the list of files")
            for path, mode, mtime, entries, *record in msgspec.msgpack.decode(segment) if segment else ():
                if path not in self.named:
                    self.lose(path, "a folder that no entry names")
                    continue
                folder = self.open(path)
                for entry in entries:
                    self.make(folder, path + b"/" * bool(path) + entry[0], entry)
                os.close(folder)
                done.append((path, mode, mtime, *record[:3]))
        for path, *record in reversed(done):
            self.dress(self.open(path), *record)

    def lose(self, path: bytes, what: str) -> None:
        self.checkpoint.losses.append(f"{self.tree['name']}, {path!r}: {what}")

    def open(self, path: bytes) -> int:
        at = os.open(self.top, FOLDER)
        for name in filter(None, path.split(b"/")):
            above, at = at, os.open(name, FOLDER, dir_fd=at)
            os.close(above)
        return at

    def owner(self, uid: int | None, gid: int | None) -> tuple[int, int]:
        mine = self.tree["uid"] if uid is None else uid, self.tree["gid"] if gid is None else gid
        return mine if os.geteuid() == 0 else (-1, -1)

    def dress(self, fd: int, mode: int, mtime: int, xattrs: Any, uid: int | None, gid: int | None) -> None:
        os.fchown(fd, *self.owner(uid, gid))
        for name, value in xattrs:
            os.setxattr(fd, name, value)
        os.fchmod(fd, mode)
        os.utime(fd, ns=(mtime, mtime))
        os.close(fd)

    def make(self, folder: int, path: bytes, entry: list[Any]) -> None:
        name, kind, mode, mtime, size, ids, target, lengths, xattrs, uid, gid = entry[:11]
        if name in {b"", b".", b".."} or {0, 47} & set(name) or kind not in {"f", "d", "l", "h"}:
            raise SystemExit(f"refused: {path!r} has a name or a kind that no entry has")
        if kind == "d":
            os.mkdir(name, 0o700, dir_fd=folder)
            self.named.add(path)
        elif kind == "h" and target in self.files:
            source = self.open(target.rpartition(b"/")[0])
            os.link(target.rpartition(b"/")[2], name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
            os.close(source)
        elif kind == "h":
            self.lose(path, "a hard link to no earlier file")
        elif kind == "l":
            os.symlink(target, name, dir_fd=folder)
            os.chown(name, *self.owner(uid, gid), dir_fd=folder, follow_symlinks=False)
            os.utime(name, ns=(mtime, mtime), dir_fd=folder, follow_symlinks=False)
        else:
            self.files.add(path)
            fd, at, place = os.open(name, NEW_FILE, 0o600, dir_fd=folder), 0, 0
            for length in lengths or ([size] if ids else []):
                if length > 0:
                    content, place = self.checkpoint.chunk(ids[place : place + 32]), place + 32
                    if content is None or os.pwrite(fd, content, at) != length:
                        self.lose(path, f"{length} bytes from {at} on")
                at += abs(length)
            os.ftruncate(fd, size)
            self.dress(fd, mode, mtime, xattrs, uid, gid)


if __name__ == "__main__":
    if len(args := [*map(Path, sys.argv[1:])]) != 3 or args[2].is_file() or any(args[2].glob("*")):
        sys.exit("usage: read_checkpoint.py BLOBS KEYS.json TARGET, where TARGET is empty or not there yet")
    for tree in (checkpoint := Checkpoint(args[0], json.loads(args[1].read_text()))).root["trees"]:
        if Path(tree["name"]).name != tree["name"]:
            raise SystemExit(f"refused: {tree['name']!r} is no name of a tree")
        Tree(checkpoint, tree, args[2] / tree["name"])
    sys.exit("\n".join(f"lost: {loss}" for loss in checkpoint.losses) or 0)
