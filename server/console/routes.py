"""The console as routes of a web application: pages, actions, login, and the files they link to."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from mnemolog.adapters.support.store_access import read, with_pools
from mnemolog.application.visible_events import reading
from mnemolog.domain import errors
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.request import as_it_is
from mnemolog.domain.result import Result
from mnemolog.domain.spelling import closest
from mnemolog.server.console import (
    facts_page,
    forgetting_page,
    history_page,
    jobs,
    overview_page,
    recall_page,
    receipts_page,
    sessions_page,
    upkeep_page,
)
from mnemolog.server.console.moment import BOXES, VISIT_COOKIE, AsOf, TimeBar, Visit, as_of, time_bar
from mnemolog.server.console.page import (
    Action,
    ConsoleRequest,
    ErrorPage,
    Page,
    PageRequest,
    Refused,
    Target,
    form_of,
    local_target,
    redirect,
    text,
    wants_json,
)
from mnemolog.server.console.rendering import Assets, environment, url, use_zone_of, zone
from mnemolog.server.http.authentication import Caller, is_program
from mnemolog.server.http.openapi import DOCUMENT, document
from mnemolog.server.http.problems import PROBLEM_JSON, as_plain, hint_of, status_of
from mnemolog.store import MemoryStore

LogIn = Callable[[str], Awaitable[Caller | None]]
"""Returns the caller that a token stands for, None for an invalid one."""

LOGIN_COOKIE: Final = "mnemolog_token"
THEME_COOKIE: Final = "mnemolog_theme"
LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
THEME: Final = "/theme"
STATIC: Final = "/static/"
SEARCH: Final = "/search"
API_PAGE: Final = "/docs"
PUBLIC: Final = (LOGIN, LOGOUT, THEME, STATIC, API_PAGE, DOCUMENT)
"""Prefixes of paths that need no token: they have no content."""
REPORTS: Final = ("/health", "/audit/verify")
"""Beginnings of the paths that answer also for a log that has lost events."""
NAVIGATION: Final = (
    ("Look", {"/": "Overview", "/sessions": "Sessions", "/facts": "Facts", "/lineage": "Lineage", "/live": "Live"}),
    ("Ask", {"/recall": "Recall", "/context": "Context", "/diff": "What changed", "/review": "Review"}),
    (
        "Keep",
        {
            "/health": "Health",
            "/audit": "Audit",
            "/proposals": "Proposals",
            "/forgetting": "Forgetting",
            "/retention": "Retention",
            "/tokens": "Tokens",
        },
    ),
)
"""The menu: groups of pages. A page that the caller may not open is left out."""
THEMES: Final = ("auto", "light", "dark")
KEPT: Final = ("at", "scope")
"""Parameters of the URL that links keep."""
COOKIE_AGE_S: Final = 30 * 24 * 3600
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: with that, browsers send the forms of our own pages with `Origin: null`, as forged ones have.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept, Cookie",
}
"""Headers of every answer of the console: nothing from elsewhere, nothing inline, in no frame."""
_HIDDEN: Final = (errors.UnknownSession, errors.OutsideScope, errors.OutsideSession)
"""Errors with status 404: what a caller may not see looks like what does not exist."""
_IN_WORDS: Final[Mapping[type[errors.MnemologError], tuple[str, str]]] = {
    errors.UnknownSession: ("There is no such session", "The page of sessions lists all that there are."),
    errors.OutsideScope: ("This is not for you to see", "Use a token for the whole store."),
    errors.InvalidInput: ("This cannot be shown", "Correct the address of the page, or what you typed."),
    errors.HistoryLost: ("The log has lost events", "The page Health says what to do."),
    errors.LogUnreachable: ("The log does not answer", "Nothing is lost. Try again in a moment."),
    errors.StoreClosed: ("The server is stopping", "Try again in a moment."),
}
"""Title and hint of an error page, by class of the error. Its message is the detail."""


_MODULES: Final = (
    *(overview_page, sessions_page, facts_page, recall_page, receipts_page),
    *(history_page, upkeep_page, forgetting_page, jobs),
)
_FOUND: Final = [item for module in _MODULES for item in vars(module).values()]
PAGES: Final = tuple(item for item in _FOUND if isinstance(item, Page))
"""All pages. A page that is also in `NAVIGATION` is in the menu."""
ACTIONS: Final = tuple(item for item in _FOUND if isinstance(item, Action))
"""All that forms of the console can do."""


class Console:
    """Pages over the store of `request.state.caller`, which `Authentication` sets. Without it every page fails."""

    def __init__(self, *, name: str = "", write: bool = False, log_in: LogIn | None = None) -> None:
        """`name` is shown as that of the store. Forms change something only with `write`.

        `log_in` returns the caller that a token stands for; without it there is no login page.
        """
        self._name = name
        self._write = write
        self._log_in = log_in
        self._templates = environment()

    def routes(self) -> list[Any]:
        """Return the routes of the console. The last one matches every path: put it behind all others."""
        return [
            *(self._route(page.path, partial(self._show, page)) for page in PAGES),
            *(self._route(action.path, partial(self._do, action), "POST") for action in ACTIONS),
            self._route(LOGIN, self._login, "GET", "POST"),
            self._route(LOGOUT, self._logout, "POST"),
            self._route(THEME, self._theme, "POST"),
            self._route(API_PAGE, self._api),
            self._route(SEARCH, self._search),
            Mount(STATIC, Assets()),
            self._route("/{path:path}", self._no_page),
        ]

    def _route(self, path: str, answer: Callable[[Request], Awaitable[Response]], *methods: str) -> Route:
        async def endpoint(request: Request) -> Response:
            use_zone_of(request.cookies)
            try:
                with as_it_is() if path.startswith(REPORTS) else nullcontext():
                    response = await answer(request)
            except (errors.MnemologError, Refused) as error:
                failed, around = error.page if isinstance(error, Refused) else _error_page(error), dict[str, Any]()
                if isinstance(error, errors.InvalidInput) and (caller := getattr(request.state, "caller", None)):
                    now = await read(caller.store, lambda store: as_of(store, ""))
                    around = await self._surroundings(request, now)
                response = self._page(request, "error.html", failed.title, failed, status=failed.status, **around)
            response.headers.update(HEADERS)
            return response

        return Route(path, endpoint, methods=methods or ("GET",))

    async def _show(self, page: Page, request: Request) -> Response:
        caller = _admitted(request, page)
        given = {name: text(request.query_params, name) for name in BOXES if name in request.query_params}

        def found(store: MemoryStore) -> dict[str, AsOf]:
            return {name: as_of(store, moment, name=name) for name, moment in {"at": "", **given}.items()}

        moments = await read(caller.store, found)
        told, at = {name: moments[name].text for name in given}, moments["at"]
        if told != given:  # Such as `yesterday`: the URL is to keep its meaning, also in another zone.
            query = urlencode([(name, told.get(name, value)) for name, value in request.query_params.multi_items()])
            if not wants_json(request):
                return redirect(f"{request.url.path}?{query}")
            request = Request({**request.scope, "query_string": query.encode()})
        data = await _gated(caller, page, page.show(PageRequest(request, request.query_params, at)))
        if text(request.query_params, "format") == "csv" and hasattr(data, "to_csv"):
            return Response(data.to_csv(), media_type="text/csv")
        response = await self._page_at(request, page, data, at)
        if not wants_json(request):
            self._set_cookie(request, response, VISIT_COOKIE, Visit.cookie(Visit.of(request.cookies), at.head))
        return response

    async def _do(self, action: Action, request: Request) -> Response:
        if action.needs_write and not self._write:
            hint = "Changes are allowed here if the server is started with `--write`."
            raise Refused(403, "This console is read-only", "Nothing was changed.", hint)
        caller = _admitted(request, action)
        done = await _gated(caller, action, action.do(ConsoleRequest(request, form_of(await request.body()))))
        if isinstance(done, Response):
            return done
        return await self._page_at(request, action, done, await read(caller.store, lambda store: as_of(store, "")))

    async def _page_at(self, request: Request, of: Target, data: Any, at: AsOf) -> Response:
        """Return a page with the bar of time."""
        return self._page(request, of.template, of.title, data, **await self._surroundings(request, at))

    async def _surroundings(self, request: Request, at: AsOf) -> dict[str, Any]:
        """Return what is around a page as of a moment: the bar of time, scopes to choose from, and what waits now."""
        if wants_json(request):
            return {}
        scope = text(request.query_params, "scope")

        def look(store: MemoryStore) -> dict[str, Any]:
            with suppress(errors.MnemologError):
                scopes, narrow = sessions_page.known_scopes(store), store.within(scope) if scope else store
                waiting = store.parts.proposals.waiting()
                return {"at": at, "bar": time_bar(narrow, at), "scopes": scopes, "waiting": waiting}
            return {"at": at, "bar": time_bar(store, at), "scopes": []}

        return await read(request.state.caller.store, look)

    async def _search(self, request: Request) -> Response:
        """Lead to what was searched for."""
        caller, query = _admitted(request, PAGES[0]), request.query_params
        here = urlsplit(local_target(text(query, "here")))
        to, found = await read(caller.store, lambda store: sessions_page.search(store, text(query, "q"), here.path))
        kept = dict(parse_qsl(here.query)) if to == here.path else {}
        return redirect(url(to, {**{name: query.get(name) for name in KEPT}, **kept, **found}))

    async def _no_page(self, _: Request) -> Response:
        what = "The address names no page of this console."
        raise Refused(404, "There is no such page", what, "Choose one from the menu.")

    async def _login(self, request: Request) -> Response:
        if self._log_in is None:  # No token is needed; the cookie may be that of another server of this machine.
            response = redirect(local_target(text(request.query_params, "next")))
            response.delete_cookie(LOGIN_COOKIE)
            return response
        if request.method == "GET":
            shown = Login(next=text(request.query_params, "next"), wrong=False)
            return self._page(request, "login.html", "Log in", shown)
        form = form_of(await request.body())
        token, target = text(form, "token"), text(form, "next")
        if not token.isascii() or await self._log_in(token) is None:
            return self._page(request, "login.html", "Log in", Login(next=target, wrong=True), status=401)
        response = redirect(local_target(target))
        self._set_cookie(request, response, LOGIN_COOKIE, token)
        return response

    async def _api(self, request: Request) -> Response:
        return self._page(request, "api.html", "API", document())

    async def _logout(self, _: Request) -> Response:
        response = redirect("/")
        response.delete_cookie(LOGIN_COOKIE)
        return response

    async def _theme(self, request: Request) -> Response:
        form = form_of(await request.body())
        theme = text(form, "theme")
        response = redirect(local_target(text(form, "next")))
        self._set_cookie(request, response, THEME_COOKIE, theme if theme in THEMES else THEMES[0])
        return response

    def _set_cookie(self, request: Request, response: Response, name: str, value: str) -> None:
        response.set_cookie(
            name,
            value,
            max_age=COOKIE_AGE_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def _page(
        self,
        request: Request,
        template: str,
        title: str,
        data: Any,
        *,
        at: AsOf | None = None,
        bar: TimeBar | None = None,
        scopes: Sequence[str] = (),
        waiting: int = 0,
        status: int = 200,
    ) -> Response:
        is_refusal, accepted = isinstance(data, ErrorPage), request.headers.get("accept", "")
        if wants_json(request) or (is_refusal and ("text/html" not in accepted or is_program(request.url.path))):
            kind = PROBLEM_JSON if is_refusal else "application/json"
            return Response(to_printable_json(data, enc_hook=as_plain), status_code=status, media_type=kind)
        around = {"at": at, "bar": bar, "scopes": scopes, "waiting": waiting}
        html = self._templates.get_template(template).render(data=data, **around, **self._shell(request, title))
        return Response(html, status_code=status, media_type="text/html")

    def _shell(self, request: Request, title: str) -> dict[str, Any]:
        """Return the variables of every template, besides the data of its page."""
        caller: Caller | None = getattr(request.state, "caller", None)  # None on a public page before the login.
        params = {name: value for name, value in request.query_params.items() if value}
        path = request.url.path if request.method == "GET" else "/"
        kept = {name: params[name] for name in KEPT if name in params}
        may_open = set() if caller is None else {page.path for page in PAGES if _refusal(caller, page) is None}
        theme = str(request.cookies.get(THEME_COOKIE, ""))
        return {
            "title": title,
            "name": self._name,
            "menu": list(_menu(may_open)),
            "may_open": may_open,
            "path": path,
            "params": params,
            "caller": caller,
            "write": self._write,
            "logged_in": LOGIN_COOKIE in request.cookies,
            "theme": theme if theme in THEMES else THEMES[0],
            "themes": THEMES,
            "zone": str(zone()),
            "got": request.method == "GET",
            "closest": closest,
            "link": lambda to, **query: url(to, {**kept, **query}),
            "here": lambda **query: url(path, {**params, **query}),
        }


class Login(Result, frozen=True, kw_only=True):
    """What the login page shows."""

    next: str
    """Where to go afterwards."""
    wrong: bool
    """Whether the token that was given is not valid."""


def _error_page(error: errors.MnemologError) -> ErrorPage:
    """Return an error of the store as a page shows it."""
    of = next((kind for kind in type(error).__mro__ if kind in _IN_WORDS), None)
    title, hint = ("This could not be done", hint_of(error)) if of is None else _IN_WORDS[of]
    status = 404 if isinstance(error, _HIDDEN) else status_of(type(error))
    return ErrorPage(status=status, title=title, detail=str(error), hint=hint)


def _menu(may_open: Set[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the pages that a caller may open, by group."""
    for group, items in NAVIGATION:
        if shown := [item for item in items.items() if item[0] in may_open]:
            yield group, shown


async def _gated(caller: Caller, target: Target, made: Awaitable[Any]) -> Any:
    """Return what a page shows to a caller: within the caller's scopes, and with a line in the audit of reads."""
    visible = with_pools(caller.store)[0].parts.visible
    with reading(visible, f"console {target.path}") as shown:
        data = await made
        data = await read(caller.store, lambda _: visible.admitted(data))
        # Where it leads to and how far it has come is no content.
        shown.silent = isinstance(data, RedirectResponse) or (isinstance(data, jobs.JobPage) and data.result is None)
        shown.collect(data)
    return data


def _admitted(request: Request, target: Target) -> Caller:
    """Return the caller. Raises `Refused` if that caller may not use a page or an action."""
    caller: Caller = request.state.caller
    if (refusal := _refusal(caller, target)) is not None:
        raise refusal
    return caller


def _refusal(caller: Caller, target: Target) -> Refused | None:
    """Return why a caller may not use a page or an action; None if the caller may."""
    if not caller.may(target.verb):
        what, hint = (
            f"Your token does not have the right {target.verb!r}.",
            "Ask who runs the server for a token with it.",
        )
        return Refused(403, "Not allowed", what, hint)
    if target.whole and with_pools(caller.store)[0].parts.boundary.scopes:
        what = "Your token is for a part of it, so it is not shown to you."
        hint = "Ask for a token that is bound to no scope."
        return Refused(403, "This page is about the whole memory", what, hint)
    return None
