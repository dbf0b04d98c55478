"""How programs that use MCP servers add one and remove it: by their own command, or in a file that their user edits."""

import json
from collections.abc import Sequence
from typing import Final, Literal

McpHost = Literal["claude", "codex", "code", "cursor", "claude-desktop", "zed"]
NAME: Final = "mnemolog"
"""Of the server, in each host."""
_FILES: Final[dict[McpHost, tuple[str, str]]] = {
    "code": ("the file that `MCP: Open User Configuration` opens in VS Code", "servers"),
    "cursor": ("~/.cursor/mcp.json", "mcpServers"),
    "claude-desktop": ("claude_desktop_config.json, which Settings, Developer, Edit Config shows", "mcpServers"),
    "zed": ("the file that `zed: open settings` opens", "context_servers"),
}
"""By host, where its user keeps MCP servers, and below which key."""


def adding(host: McpHost, server: Sequence[str]) -> list[str] | str:
    """Return the command that adds a server, started by the words of `server`; for a host without one, what to edit."""
    entry = {"command": server[0], "args": list(server[1:])}
    match host:
        case "claude":
            return [host, "mcp", "add", "--scope", "user", NAME, "--", *server]
        case "codex":
            return [host, "mcp", "add", NAME, "--", *server]
        case "code":
            return [host, "--add-mcp", json.dumps({"name": NAME, **entry})]
    where, key = _FILES[host]
    return f"Add this to {where}:\n{json.dumps({key: {NAME: entry}}, indent=2, ensure_ascii=False)}"


def removing(host: McpHost) -> list[str] | str:
    """Return the command that removes what `adding` adds; for a host without one, what to edit."""
    if host in ("claude", "codex"):
        return [host, "mcp", "remove", NAME]
    where, key = _FILES[host]
    return f'Remove "{NAME}" below "{key}" from {where}.'
