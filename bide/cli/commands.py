"""The table of commands: what there is, where it lives, what it does. Nothing is loaded until it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

WIDTH = 12


class Command(NamedTuple):
    """A command, the place of its function as `module:name`, and what it does."""

    name: str
    place: str
    summary: str


class WrongUse(Exception):
    """The command line is not right; exit code 2."""

    def __init__(self, sentence: str, hint: str) -> None:
        self.sentence, self.hint = sentence, hint
        super().__init__(sentence)

    def problem(self) -> dict[str, object]:
        """In the form of a refusal."""
        return {
            "type": "urn:bide:problem:usage",
            "title": "The command line is not right",
            "status": 400,
            "code": "usage",
            "detail": self.sentence,
            "hint": self.hint,
        }


COMMANDS: dict[str, tuple[Command, ...]] = {
    "Sessions": (
        Command("run", "bide.cli.run:run", "Start a session on a repository."),
        Command("ps", "bide.cli.ps:ps", "List sessions: state, since when, who must act, what is next."),
        Command("show", "bide.cli.show:show", "Show all of one session: questions, inputs, losses, checkpoints."),
        Command("attach", "bide.cli.attach:attach", "Follow a session as it works, and talk to it."),
        Command("logs", "bide.cli.logs:logs", "Print a session's events."),
        Command("send", "bide.cli.send:send", "Send a message."),
        Command("steer", "bide.cli.send:steer", "Send a message into the running turn."),
        Command("interrupt", "bide.cli.send:interrupt", "Stop the running turn."),
        Command("edit", "bide.cli.change:edit", "Change a message that is not delivered yet."),
        Command("withdraw", "bide.cli.change:withdraw", "Take a message or an answer back that is not delivered yet."),
        Command("resolve", "bide.cli.change:resolve", "Say whether an unconfirmed message was delivered."),
        Command("park", "bide.cli.life:park", "Save everything and free the runner."),
        Command("resume", "bide.cli.life:resume", "Bring a parked session back to a runner."),
        Command("cancel", "bide.cli.life:cancel", "Stop a session, save it, end it."),
        Command("files", "bide.cli.files:files", "List a checkpoint's files, or print one of them."),
        Command("diff", "bide.cli.diff:diff", "Show what changed from one checkpoint to another."),
        Command("export", "bide.cli.export:export", "Take a checkpoint out, as a tar archive."),
        Command("fork", "bide.cli.branch:fork", "Start another session from a checkpoint."),
        Command("rewind", "bide.cli.branch:rewind", "Take a session back to a checkpoint."),
        Command("extend", "bide.cli.life:extend", "Keep a parked or ended session for longer."),
        Command("rm", "bide.cli.erase:rm", "Delete a session and all that is saved of it."),
    ),
    "Questions": (
        Command("inbox", "bide.cli.inbox:inbox", "List the questions that wait for a person, and answer them."),
        Command("answer", "bide.cli.answer:answer", "Answer a question."),
    ),
    "Server and runners": (
        Command("up", "bide.cli.up:up", "Start the server and one runner on this machine."),
        Command("open", "bide.cli.open:open_page", "Print a link that signs a browser in to the web page."),
        Command("runner", "bide.cli.runner:runner", "Run sessions on this machine for a server."),
        Command("runners", "bide.cli.fleet:runners", "List the runners."),
        Command("drain", "bide.cli.drain:drain", "Empty a runner: everything it holds is saved and goes on elsewhere."),
        Command("runtimes", "bide.cli.fleet:runtimes", "List the runtimes that can be used."),
        Command("limits", "bide.cli.limits:limits", "List every bound, and where its value comes from."),
        Command("project", "bide.cli.project:project", "List, show, set up and delete projects."),
        Command("ticket", "bide.cli.erase:ticket", "Delete all sessions of a ticket."),
        Command("fsck", "bide.cli.fsck:fsck", "Read saved checkpoints through, and name what is damaged."),
        Command("doctor", "bide.cli.doctor:doctor", "Look for what is missing on this machine."),
        Command("demo", "bide.cli.demo:demo", "Watch a session ask, park, and go on elsewhere."),
    ),
}


def overview() -> Iterator[str]:
    """All commands, line by line."""
    yield "bide runs coding-agent sessions that wait for people."
    yield ""
    yield "Usage: bide COMMAND …"
    for title, commands in COMMANDS.items():
        yield ""
        yield title
        for command in commands:
            yield f"  {command.name:<{WIDTH}}{command.summary}"
    yield ""
    yield "`bide COMMAND --help` says the rest; every command takes --json. `bide --version` says which release this is."
