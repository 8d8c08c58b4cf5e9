"""What a request to the model shows of the conversation so far: calls with their results, and what people said."""

from __future__ import annotations

import re

from msgspec import Struct

from bide.rehearsal.turns import Call, Request, results, texts

_REMINDER = re.compile(r"<system-reminder>(.*?)</system-reminder>", re.DOTALL)
FOLDED = "The user sent a new message"  # a message given in mid-turn may come wrapped as a reminder


class Deed(Struct, frozen=True, kw_only=True):
    """One call and what came back."""

    at: int
    call: Call
    ok: bool
    text: str


class Said(Struct, frozen=True, kw_only=True):
    """A text that came from outside: a person's, bide's, or the runtime's own framing of one."""

    at: int
    text: str


class Past(Struct, frozen=True, kw_only=True):
    """A stretch of a conversation."""

    deeds: tuple[Deed, ...] = ()
    said: tuple[Said, ...] = ()

    def made(self, call: Call) -> Deed | None:
        """The newest time that this call was made and answered. The runtime may have added arguments of its own."""
        return next((deed for deed in reversed(self.deeds) if _same(deed.call, call)), None)

    def after(self, moment: Deed | Said) -> Past:
        """What followed."""
        return Past(
            deeds=tuple(deed for deed in self.deeds if deed.at > moment.at),
            said=tuple(said for said in self.said if said.at > moment.at),
        )


def read_past(request: Request) -> Past:
    """The conversation of a request, in order. A call without a result is not told: it has not happened."""
    calls: dict[str, Call] = {}
    deeds: list[Deed] = []
    said: list[Said] = []
    at = 0
    for message in request.get("messages", []):
        if message["role"] == "assistant":
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block.get("type") == "tool_use":
                    calls[block["id"]] = Call(block["name"], block["input"])
            continue
        for result in results(message):
            at += 1
            if result["id"] in calls:
                deeds.append(Deed(at=at, call=calls[result["id"]], ok=result["ok"], text=result["text"]))
        for text in texts(message):
            at += 1
            said.append(Said(at=at, text=_spoken(text)))
    return Past(deeds=tuple(deeds), said=tuple(each for each in said if each.text.strip()))


def _same(made: Call, wanted: Call) -> bool:
    return made.name == wanted.name and all(made.input.get(name) == given for name, given in wanted.input.items())


def _spoken(text: str) -> str:
    """The text without what the runtime added to it."""
    return _REMINDER.sub(lambda found: found[1] if FOLDED in found[1] else "", text)


def bash(command: str) -> Call:
    """A call that runs a command."""
    return Call("Bash", {"command": command})


def shown(call: Call) -> str:
    """The call in a few words."""
    return f"`{call.input['command'][:80]}`" if call.name == "Bash" else call.name
