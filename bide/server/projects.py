"""Projects as stored: one small document each, found by name or by repository."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bide.core.refusals import Refused
from bide.server import repositories
from bide.server.config import Config
from bide.server.settings import Effective, Value, layered
from bide.store.base import Engine, Reader

KIND = "project"


class ProjectRow(Struct, frozen=True, kw_only=True):
    """A project. `settings` holds only what was set for it."""

    name: str
    repository: str
    settings: dict[str, Value] = {}
    created_at: float = 0.0

    def effective(self, config: Config, session: dict[str, Value] | None = None) -> Effective:
        """The settings that hold for a session of it."""
        return layered(config.lease_s, config.defaults, self.settings, session)


def find(reader: Reader, name: str) -> ProjectRow | None:
    """The project of that name."""
    stored = reader.get(KIND, name)
    return msgspec.json.decode(stored, type=ProjectRow) if stored else None


def require(reader: Reader, name: str) -> ProjectRow:
    """The project of that name, or `Refused('no_project')`."""
    row = find(reader, name)
    if row is None:
        raise Refused("no_project", f"There is no project {name}.")
    return row


def every(reader: Reader) -> list[ProjectRow]:
    """All projects, by name."""
    return [row for name in reader.keys(KIND) if (row := find(reader, name)) is not None]


def put(engine: Engine, name: str, repository: str | None, settings: dict[str, Value] | None) -> ProjectRow:
    """Creates or changes a project; what is None stays as it was."""
    row = find(engine, name)
    if row is None:
        if repository is None:
            raise Refused("no_repository", "A new project needs a repository.")
        row = ProjectRow(name=name, repository=repository, created_at=engine.now())
    changed = replace(
        row,
        repository=row.repository if repository is None else repository,
        settings=row.settings if settings is None else settings,
    )
    engine.put(KIND, name, msgspec.json.encode(changed))
    return changed


def resolve(reader: Reader, name: str, repository: str) -> ProjectRow:
    """The project a new session belongs to. One that is not there yet is made up, not stored."""
    if not repository:
        return require(reader, name)
    if name:
        row = find(reader, name)
        if row is not None and not repositories.same(row.repository, repository):
            raise Refused(
                "name_taken",
                f"Project {name} works on {row.repository}, not on {repository}.",
                "Leave the project out, or choose another name for it.",
            )
        return row or ProjectRow(name=name, repository=repository, created_at=reader.now())
    for row in every(reader):
        if repositories.same(row.repository, repository):
            return row
    short = repositories.name_for(repository)
    free = short if find(reader, short) is None else repositories.name_for(repository, unique=True)
    return ProjectRow(name=free, repository=repository, created_at=reader.now())


def ensure(engine: Engine, name: str, repository: str) -> ProjectRow:
    """The same, stored."""
    row = resolve(engine, name, repository)
    if find(engine, row.name) is None:
        engine.put(KIND, row.name, msgspec.json.encode(row))
    return row
