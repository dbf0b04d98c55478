"""The store over the network: HTTP API, console, MCP, and the client."""
