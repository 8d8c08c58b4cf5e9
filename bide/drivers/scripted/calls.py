"""What the scripted runtime asks of others."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any


class Gateway:
    """The session's gateway: tools and model, never through a proxy."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(self, route: str, body: dict[str, Any], **headers: str) -> Any:
        token = Path(self.settings["token"]).read_text().strip()
        request = urllib.request.Request(  # noqa: S310 — the address is the one bide wrote
            self.settings["gateway"] + route,
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "Authorization": "Bearer " + token,
                **headers,
            },
        )
        with self.opener.open(request, timeout=self.settings["http_s"]) as answer:
            content = answer.read().decode()
            if "event-stream" in answer.headers.get("Content-Type", ""):
                content = [line[5:] for line in content.splitlines() if line.startswith("data:")][-1]
        return json.loads(content)

    def tool(self, name: str, arguments: dict[str, Any]) -> tuple[bool, str, bool]:
        """Gives (ok, text, whether the turn ends here)."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        try:
            answer = self.post("/mcp", body, **{"MCP-Protocol-Version": "2025-06-18"})
        except (OSError, ValueError, IndexError) as error:
            return False, f"The tool could not be reached: {error}", False
        if "error" in answer:
            return False, str(answer["error"].get("message")), False
        result = answer["result"]
        text = "\n".join(part.get("text", "") for part in result.get("content", []))
        return not result.get("isError"), text, bool((result.get("_meta") or {}).get("claude/endTurn"))
