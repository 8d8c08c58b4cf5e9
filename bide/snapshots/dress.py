"""Gives folders their owners, attributes, modes and times, once nothing is made in them any more."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from bide.core import limits
from bide.snapshots import crew
from bide.snapshots.fill import Hands
from bide.snapshots.manifest import Folder
from bide.snapshots.write import Remarks, Told


def dress(
    folders: Mapping[bytes, tuple[str, Folder]], hands: Hands, remarks: Remarks, workers: int, bare: bool = False
) -> None:
    """Dresses the folders of one place: by path, with the tree whose record it is. `bare`: see `Writer.dress_folder`."""
    ordered = [folders[path] for path in sorted(folders, reverse=True)]
    last: list[tuple[str, Folder]] = []
    if os.geteuid() != 0:  # whom modes bind: below a folder that is shut nothing can be reached any more
        last = [item for item in ordered if item[1].mode & 0o700 != 0o700]
        ordered = [item for item in ordered if item[1].mode & 0o700 == 0o700]

    def work(share: Sequence[tuple[str, Folder]]) -> Told:
        said = Remarks()
        writers = hands(said)
        for tree, folder in share:
            writers[tree].dress_folder(folder, bare)
        return said.told()

    count = workers if len(ordered) >= limits.RESTORE_FORK_MIN else 1
    for told in crew.each(work, crew.shared(ordered, lambda _: 1, count), Told):
        remarks.take(told)
    remarks.take(work(last))
