"""Projects: a repository with its settings."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from bide.cli import erase, inert, limits, out, tables, when
from bide.cli.flags import FLAGS, Flags
from bide.cli.run import repository as absolute
from bide.client import shapes
from bide.core.bounds import LIMITS
from bide.core.quantities import amount
from bide.core.refusals import Refused
from bide.server import patterns
from bide.server.settings import WORDS
from bide.snapshots.scope import git_lost_to

project = App(name="project", help="List, show, set up and delete projects.")
Name = Annotated[str, Parameter(help="The project's name.")]


@project.command
async def ls(*, flags: Flags = FLAGS) -> None:
    """List the projects."""
    async with flags.client() as client:
        found = await client.projects()
    if flags.json:
        out.listed(found)
    elif not found:
        out.tell("No projects. `bide run REPO TASK` makes the repository's own.")
    else:
        rows = [(one["name"], one["settings"]["runtime"], one["repository"]) for one in found]
        tables.show(("project", "runtime", "repository"), rows, wraps="repository")


@project.command
async def show(name: Name, /, *, flags: Flags = FLAGS) -> None:
    """Show one project: its repository and the settings that hold for it."""
    async with flags.client() as client:
        _print(await client.project(name), flags)


@project.command(name="set", usage="Usage: bide project set [OPTIONS] NAME [SETTING]...")
async def set_up(
    name: Name,
    /,
    *settings: Annotated[str, Parameter(help="NAME=VALUE, e.g. online_window_s=2h; NAME= takes it back.")],
    repository: Annotated[str, Parameter(help="A git URL or a path on the server's machine.")] = "",
    flags: Flags = FLAGS,
) -> None:
    """Make a project, or change it. Settings that are not named stay as they are."""
    async with flags.client() as client:
        try:
            own = _own(await client.project(name)) if settings else {}
        except Refused as refused:
            if refused.code != "no_project" or not repository:
                raise
            own = {}
        for given in settings:
            setting, value = _setting(given)
            own.pop(setting, None)
            if value is not None:
                own[setting] = value
        found = await client.put_project(
            name, repository=absolute(repository) if repository else None, settings=own if settings else None
        )
    _print(found, flags)
    words = found["settings"]
    if settings and (lost := git_lost_to(patterns.split(str(words["exclude"])), patterns.split(str(words["include"])))):
        out.tell(f"exclude leaves {lost} out of what is saved: what is committed and not pushed is gone after a park.")
        out.tell("`include=.git/**` keeps it.")


@project.command
async def rm(name: Name, /, *, flags: Flags = FLAGS) -> None:
    """Delete a project with all its sessions, unless a runner holds one of them. The repository is not touched."""
    async with flags.client() as client:
        erase.told(await client.delete_project(name), flags)


@project.command
async def drop_base(name: Name, /, *, flags: Flags = FLAGS) -> None:
    """Drop what the project's sessions build upon, e.g. a damaged one. What is saved stays; the next clone makes another."""
    async with flags.client() as client:
        await client.drop_base(name)
    if flags.json:
        out.emit({"project": name, "base": None})
    else:
        out.say(f"Nothing builds upon the base of {inert.line(name)} any more; the next fresh clone makes another.")


def _own(found: shapes.Project) -> dict[str, float | str]:
    """What was set for the project itself, as far as its resource tells."""
    own: dict[str, float | str] = {one["name"]: one["value"] for one in found["limits"] if one["origin"] == "project"}
    settings = found["settings"]
    return own | {name: settings[name] for name, usual in WORDS.items() if settings.get(name, usual) != usual}


def _setting(given: str) -> tuple[str, float | str | None]:
    name, equals, value = given.partition("=")
    if not equals:
        raise Refused("bad_setting", f"{given[:80]!r} is no setting.", "Write NAME=VALUE, e.g. online_window_s=2h.")
    if not value:
        return name, None
    if name not in LIMITS:
        return name, value
    unit = LIMITS[name].unit
    try:
        return name, float(value)
    except ValueError:
        pass
    try:
        return name, when.duration(value) if unit == "s" else when.bytes_of(value) if unit == "bytes" else float(value)
    except ValueError as error:
        ours = str(error) if unit in ("s", "bytes") else f"{value[:80]!r} is not a whole number."
        raise Refused("bad_value", f"{name}: {ours}", f"Its default is {amount(LIMITS[name].default, unit)}.") from None


def _print(found: shapes.Project, flags: Flags) -> None:
    if flags.json:
        out.emit(found)
        return
    words = [(name, str(value)) for name, value in found["settings"].items() if isinstance(value, str)]
    rows = [("repository", found["repository"]), *words, ("since", when.clock(found["created_at"]))]
    out.say(f"{found['name']}\n{tables.fields(rows)}\n")
    limits.table(found["limits"])
