"""A store on a server, used like one in a folder. Needs the extra `client`."""
