"""Connect to a server: `mnemolog.connect` and `mnemolog.connect_async`."""

from collections.abc import Sequence
from pathlib import Path

from mnemolog.adapters.extras import require
from mnemolog.aio.store import opening
from mnemolog.domain.scope import parse_scopes
from mnemolog.domain.values import WAIT_S_MAX, checked_number, checked_whole
from mnemolog.store import MemoryStore


def connect(
    url: str,
    *,
    token: str | None = None,
    scope: str | Sequence[str] = "",
    verify: bool | str | Path = True,
    timeout_s: float = 30.0,
    tries: int = 8,
    patience_s: float = 30.0,
    allow_http: bool = False,
    trust_env: bool = False,
) -> MemoryStore:
    """Return the store that a server serves: same methods, arguments and errors as a local one.

    - `url`: the URL of the server
    - `token`: one that was printed when it was created; a server on this machine may need none
    - `scope`: limits the store to one scope or several, as in `MemoryStore.open`
    - `verify`: a file of certificate authorities, in place of those of the system; False to accept any certificate
    - `timeout_s`: how long the server may be silent, in seconds
    - `tries`: how often a call is sent at most
    - `patience_s`: how long calls are sent again, in seconds
    - `allow_http`: send a token over `http` to other machines than this one, too
    - `trust_env`: use proxies and certificates named in the environment

    What the server did not begin is tried again, and so is what may be repeated without doubling anything: each write
    to a session has a key, so that a cut connection neither loses nor doubles a turn (docs/client.md). Where nothing
    listens, the first call is sent again for a second only.

    Nothing is sent before the first call. Methods also raise `LogUnreachable`, where the server does not answer; the
    message says whether the call may have been carried out. Raises `InvalidInput`, `ExtraMissing` without `httpx2`.
    """
    require("client", "httpx2")
    from mnemolog.server.client.connection import Connection
    from mnemolog.server.client.store import RemoteStore

    connection = Connection(
        url,
        token,
        parse_scopes(scope),
        verify=verify,
        timeout_s=checked_number("timeout_s", timeout_s),
        tries=checked_whole("tries", tries, least=1),
        patience_s=checked_number("patience_s", patience_s, most=WAIT_S_MAX),
        allow_http=allow_http,
        trust_env=trust_env,
    )
    return RemoteStore(connection)


connect_async = opening(connect)
"""Return the store for asyncio, to be used with `await` or `async with`. Arguments as in `connect`."""
