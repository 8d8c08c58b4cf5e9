"""Projects: a repository with its settings."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bide.core import ids
from bide.core.bounds import Limit, every
from bide.core.limits import LIST_MAX
from bide.server import projects, render, repositories, shapes
from bide.server.calls import Call, Table
from bide.server.settings import checked, layered, require

TABLE = Table()


class ProjectBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it was. `settings` replaces all that was set before."""

    repository: str | None = None
    settings: dict[str, Any] | None = None


class Cursor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a list goes on."""

    cursor: str = ""


class Of(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose limits."""

    project: str = ""


def _shape(call: Call, row: projects.ProjectRow) -> shapes.Project:
    return render.project(row.name, row.repository, row.created_at, row.effective(call.parts.config))


@TABLE.put("/v1/projects/{project}")
async def put_project(call: Call, body: ProjectBody) -> shapes.Project:
    """Creates or changes a project."""
    name = ids.name(call.path("project"), "project")
    repository = None if body.repository is None else repositories.checked(body.repository)
    settings = None if body.settings is None else checked(body.settings)
    if settings is not None:
        require(layered(call.parts.config.lease_s, call.parts.config.defaults, settings).limits, settings)
    row = await call.parts.store.write(lambda engine: projects.put(engine, name, repository, settings))
    return _shape(call, row)


@TABLE.get("/v1/projects/{project}")
async def get_project(call: Call) -> shapes.Project:
    """One project, with the settings that hold for it."""
    name = ids.name(call.path("project"), "project")
    return _shape(call, await call.parts.store.read(lambda reader: projects.require(reader, name)))


@TABLE.get("/v1/projects")
async def list_projects(call: Call, query: Cursor) -> shapes.Items[shapes.Project]:
    """All projects, by name."""
    found = await call.parts.store.read(projects.every)
    return render.items([_shape(call, row) for row in found], query.cursor, LIST_MAX)


@TABLE.get("/v1/limits")
async def list_limits(call: Call, query: Of) -> shapes.Items[Limit]:
    """Every bound, its default, and where its value comes from: before any work. Some are fixed, most can be set."""
    config = call.parts.config
    if query.project:
        row = await call.parts.store.read(lambda reader: projects.require(reader, query.project))
        settings = row.effective(config)
    else:
        settings = layered(config.lease_s, config.defaults)
    return shapes.Items(items=every(settings.limits))
