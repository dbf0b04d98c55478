"""The HTTP connection to a server: a pool of connections, time limits, and what is tried again."""

import random
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from mnemolog.domain import errors
from mnemolog.domain.scope import Scopes
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.version import this_version
from mnemolog.server.http.problems import PROBLEM_JSON, STOPPING, Problem, error_of
from mnemolog.server.http.routes import JSON, KEY_HEADER, PREFIX, SCOPE_HEADER

CONNECTIONS_MAX: Final = 64
CONNECT_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 4.0
"""How long an unused connection is kept, in seconds: less than a server keeps it."""
FIRST_WAIT_S: Final = 0.1
"""The longest wait before the second try, in seconds. It doubles with each try."""
FIRST_PATIENCE_S: Final = 1.0
"""How long the first call is sent again where nothing listens, in seconds: the address may be wrong."""
WAIT_MAX_S: Final = 5.0
"""The longest wait before a try, in seconds, unless the server asks for more."""

REFUSED: Final = frozenset({429, 503})
"""Statuses with which a server, or what stands before it, says that it did not begin."""
LOST: Final = frozenset({502, 504})
"""Statuses with which a proxy says that the server did not answer it."""
BEGUN: Final = frozenset({STOPPING, errors.LogUnreachable.__name__})
"""Titles of problems of calls that may have been carried out."""

SILENCE_S: Final = 600.0
"""How long a call that takes long may last, in seconds."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PROBLEM: Final = msgspec.json.Decoder(Problem)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a server."""

    method: str
    path: str
    """Below `/v1`, percent-encoded."""
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    key: str | None = None
    """The idempotency key of the request, with which it may be repeated."""
    repeatable: bool
    """Whether it may be sent again where it is unknown whether the server carried it out."""
    takes_long: bool = False
    lasts_s: float = 0.0
    """How long the call itself asks the server to wait, in seconds."""


class Connection:
    """Sends calls to one server. Safe for many threads; refuses to work in a forked child."""

    def __init__(
        self,
        url: str,
        token: str | None,
        scopes: Scopes,
        *,
        tries: int,
        patience_s: float,
        timeout_s: float,
        verify: bool | str | Path,
        trust_env: bool,
        allow_http: bool,
    ) -> None:
        """The arguments are those of `connect`."""
        self.url = checked_url(url, has_token=token is not None, allow_http=allow_http)
        """Where the server is, as given, without a slash at the end."""
        self._tries = tries
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._closed = False
        self._sent = False
        self._origin = fork_guard.Origin()
        headers = {"user-agent": f"mnemolog/{this_version()}"}
        if scopes:
            headers[SCOPE_HEADER] = ",".join(map(quote, scopes))
        if token is not None:
            headers["authorization"] = f"Bearer {checked_token(token)}"
        self._client = httpx2.Client(
            headers=headers,
            verify=_verifying(verify),
            trust_env=trust_env,
            http2=False,
            follow_redirects=False,  # The token is for this origin alone.
            timeout=httpx2.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(
                max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX, keepalive_expiry=IDLE_S
            ),
        )

    def close(self) -> None:
        """Close all connections. Later calls raise `StoreClosed`."""
        self._closed = True
        if self._origin.is_here:
            self._client.close()

    def require_usable(self) -> None:
        """Raise `StoreClosed` or `StoreForked` if no call can be made."""
        self._origin.require_here()
        if self._closed:
            raise errors.StoreClosed

    def send(self, call: Call, receive: Callable[[httpx2.Response], Any] = httpx2.Response.read) -> Any:
        """Send a call and return what `receive` makes of the answer, by default its body.

        Raises what the server says, and `LogUnreachable`. A call that the server did not begin is sent again, and so is
        a repeatable one whose answer was lost: at most `tries` times within `patience_s` seconds;
        the first call, where nothing listens, within `FIRST_PATIENCE_S`. Each answer is received from its beginning.
        """
        begun, is_first, self._sent = time.monotonic(), not self._sent, True
        for tried in range(1, self._tries + 1):
            self.require_usable()
            try:
                return self._send_once(call, receive)
            except Unanswered as failure:
                pause_s = max(failure.retry_after_s, _pause_s(tried))
                is_last = tried == self._tries
                is_early = is_first and isinstance(failure.__cause__, httpx2.ConnectError)
                patience_s = min(self._patience_s, FIRST_PATIENCE_S) if is_early else self._patience_s
                is_late = time.monotonic() - begun + pause_s > patience_s
                if is_last or is_late or not (call.repeatable or failure.is_refused):
                    raise failure.error or self._unreachable(call, failure, tried) from failure.__cause__
            time.sleep(pause_s)
        raise AssertionError("there is at least one try")

    def _send_once(self, call: Call, receive: Callable[[httpx2.Response], Any]) -> Any:
        silence_s = max(self._timeout_s, SILENCE_S) if call.takes_long else self._timeout_s
        silence_s += call.lasts_s
        headers = {"accept": JSON}
        if call.body is not None:
            headers["content-type"] = JSON
        if call.key is not None:
            headers[KEY_HEADER] = call.key
        try:
            with self._client.stream(
                call.method,
                f"{self.url}{PREFIX}{call.path}",
                params=list(call.query) or None,
                content=call.body,
                headers=headers,
                timeout=httpx2.Timeout(silence_s, connect=CONNECT_TIMEOUT_S),
            ) as response:
                if not response.is_success:
                    raise self._refusal(response)
                return receive(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Unanswered(_cause(error), is_refused=True) from error
        except httpx2.TransportError as error:
            self.require_usable()
            raise Unanswered(_cause(error)) from error
        except (RuntimeError, httpx2.StreamError):
            self.require_usable()  # Closed by another thread.
            raise

    def _refusal(self, response: httpx2.Response) -> Exception:
        """Return the error for an answer that is no success."""
        body = response.read()
        status = response.status_code
        problem = None
        if response.headers.get("content-type", "").partition(";")[0] == PROBLEM_JSON:
            with suppress(msgspec.MsgspecError):
                problem = _PROBLEM.decode(body)
        error = None if problem is None else error_of(body)
        if problem is not None and error is None:  # No error of a store, such as an invalid token.
            error = errors.StoreError(problem.detail)
            error.hint = problem.hint
        after_s = response.headers.get("retry-after", "")
        if status in LOST or (status in REFUSED and (error is None or after_s)):
            is_refused = status in REFUSED and not (problem is not None and problem.title in BEGUN)
            pause_s = float(after_s) if after_s.isdecimal() else 0.0
            return Unanswered(f"status {status}", is_refused=is_refused, retry_after_s=pause_s, error=error)
        if error is not None:
            return error
        if response.is_redirect:
            where = response.headers.get("location", "")
            return errors.StoreError(f"{self.url} sends its callers to {where}; connect to that address")
        return errors.StoreError(f"{self.url} answered with status {status}, and not as a mnemolog server does")

    def _unreachable(self, call: Call, failure: "Unanswered", tried: int) -> errors.LogUnreachable:
        tries = "" if tried == 1 else f" in {tried} tries"
        known = ""
        if call.method != "GET":
            known = "; nothing was written" if failure.is_refused else "; whether it was carried out is unknown"
        error = errors.LogUnreachable(f"{self.url} did not answer{tries}: {failure}{known}")
        error.hint = "check that the server runs; then repeat the call, with the same idempotency key if it has one"
        return error


class Unanswered(Exception):
    """A try without an answer. `is_refused` if the server surely did not begin; `error` is what it said."""

    def __init__(
        self,
        why: str,
        *,
        is_refused: bool = False,
        retry_after_s: float = 0.0,
        error: errors.MnemologError | None = None,
    ) -> None:
        super().__init__(why)
        self.is_refused = is_refused
        self.retry_after_s = retry_after_s
        self.error = error


def _cause(error: httpx2.TransportError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _pause_s(tried: int) -> float:
    """Return how long to wait after a try: twice as long each time, and between half and all of it by chance."""
    return min(FIRST_WAIT_S * 2.0 ** (tried - 1), WAIT_MAX_S) * random.uniform(0.5, 1.0)


def checked_url(url: str, *, has_token: bool, allow_http: bool) -> str:
    """Return the address of a server without a slash at the end. Raises `InvalidInput`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise errors.InvalidInput("url", f"{url!r} is not the address of a server, such as https://memory.example.org")
    if parts.username is not None or parts.password is not None:
        raise errors.InvalidInput("url", "contains a name or a password; pass the token as `token`")
    if parts.query or parts.fragment:
        raise errors.InvalidInput("url", "ends with a query or a fragment; leave it out")
    if parts.scheme == "http" and has_token and not allow_http and parts.hostname not in LOOPBACK:
        why = f"would send the token to {parts.hostname} in clear text; use https, or pass allow_http=True"
        raise errors.InvalidInput("url", why)
    return url.rstrip("/")


def checked_token(token: str) -> str:
    """Return a token if a header can hold it. Raises `InvalidInput`, which does not quote it."""
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise errors.InvalidInput("token", "is not a token, as it was printed when it was created")
    return token


def _verifying(verify: bool | str | Path) -> ssl.SSLContext | bool:
    """Return how the server's certificate is checked: against the authorities of the system, or those of a file."""
    if isinstance(verify, bool):
        return verify
    try:
        return ssl.create_default_context(cafile=str(verify))
    except OSError as error:
        raise errors.InvalidInput("verify", f"{verify} has no certificates: {error}") from error
