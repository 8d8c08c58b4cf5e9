"""Proves by reading that what was too young to be remembered for sure is what a checkpoint says."""

from __future__ import annotations

import os
from functools import partial

from bide.snapshots.content import Elsewise, read_file, xattrs_of
from bide.snapshots.folders import Folders
from bide.snapshots.manifest import FILE, LINK, Entry, Folder, chunk_id


class Proof:
    """Reads below one tree, and takes what cannot be read for something else."""

    def __init__(self, folders: Folders, chunks: bytes) -> None:
        self._folders, self._chunks = folders, chunks

    def holds(self, folder: bytes, entry: Entry) -> bool:
        """Whether a file or link has the content, and attributes, of this entry; mode and times were looked at before."""
        try:
            fd = self._folders.at(folder)
            if entry.kind == LINK:
                return os.readlink(entry.name, dir_fd=fd) == entry.target
            if entry.kind != FILE:
                return True  # another name of a file that is looked at on its own
            found = read_file(fd, entry.name, partial(chunk_id, key=self._chunks), _go_on)
        except (OSError, Elsewise):
            return False
        same = (found.size, found.ids, found.lengths, found.xattrs) == (
            entry.size,
            entry.ids,
            entry.lengths,
            entry.xattrs,
        )
        return same and not found.torn

    def holds_folder(self, folder: Folder) -> bool:
        """Whether a folder has these attributes."""
        try:
            return xattrs_of(self._folders.at(folder.path))[0] == folder.xattrs
        except OSError:
            return False


def _go_on() -> None:
    return None
