"""A link that signs a browser in."""

from __future__ import annotations

from bide.cli import out, when
from bide.cli.flags import FLAGS, Flags
from bide.client.connection import find


async def open_page(*, flags: Flags = FLAGS) -> None:
    """Print a link that opens the web page and signs one browser in, once."""
    async with flags.client() as client:
        link = await client.sign_in_link()
    url = find(flags.server, flags.token).url + link["path"]
    if flags.json:
        out.emit({"url": url, "expires_at": link["expires_at"]})
        return
    out.say(url)
    out.tell(f"It signs one browser in, once, until {when.clock(link['expires_at'])}. Give it to nobody.")
