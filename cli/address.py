"""Options of the commands that serve HTTP: their address, and whom they answer."""

from __future__ import annotations

from typing import Annotated

import typer

Host = Annotated[str, typer.Option("--host", help="Address to listen at.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 for any free one.")]
AllowHost = Annotated[list[str] | None, typer.Option("--allow-host", help="Another name of this server, on any port.")]
AllowOrigin = Annotated[list[str] | None, typer.Option("--allow-origin", help="An allowed origin of other web pages.")]
