"""Options of the commands that serve HTTP: their address, and whom they answer."""

from __future__ import annotations

from typing import Annotated, Final

import typer

ADDRESS: Final = "Address and access"

Host = Annotated[str, typer.Option("--host", help="Address to listen at.", rich_help_panel=ADDRESS)]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65_535, help="Port; 0 for any free one.", rich_help_panel=ADDRESS)
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="Another name of this server, on any port.", rich_help_panel=ADDRESS),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option("--allow-origin", help="An allowed origin of other web pages.", rich_help_panel=ADDRESS),
]
