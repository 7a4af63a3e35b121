"""List the tools of a server at an address, over streamable HTTP or the older HTTP with
events.

Uses the standard library, which supports proxies and certificates. It blocks, so it
runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import msgspec

from atomic.base.sse import SseEvent, SseReader
from atomic.mcp.model import McpEntry, Transport
from atomic.mcp.tool_list import Budget, Json, TalkError, list_tools, messages_in, reply_to, result_in

Found = tuple[list[str], Transport]
Exchange = Callable[[Json], Json]

_EVENTS = "text/event-stream"
_JSON = "application/json"
_SESSION = "Mcp-Session-Id"
_VERSION = "MCP-Protocol-Version"
# Status codes of an older server for the newer protocol.
_NOT_THIS_WAY = (400, 404, 405)
_LOGIN = (401, 403)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def tools_at_address(entry: McpEntry, timeout: float) -> Found:
    """Return the tools and the transport that the server uses. Raises TalkError."""
    web = _Web(entry, timeout)
    if entry.transport is Transport.SSE:
        return _over_events(web), Transport.SSE
    try:
        return _over_http(web), Transport.HTTP
    except TalkError as error:
        if error.status not in _NOT_THIS_WAY:
            raise
        try:
            return _over_events(web), Transport.SSE
        except TalkError:
            raise error from None


def _asked(exchange: Exchange) -> list[str]:
    talk = list_tools()
    message = next(talk)
    while True:
        result = exchange(message)
        try:
            message = talk.send(result)
        except StopIteration as end:
            return end.value


def _over_http(web: _Web) -> list[str]:
    headers: dict[str, str] = {"Accept": f"{_JSON}, {_EVENTS}"}

    def exchange(message: Json) -> Json:
        with closing(web.post(web.url, message, headers)) as response:
            session = response.headers.get(_SESSION)
            if session:
                headers[_SESSION] = session
            result = _answer(response, message) if "id" in message else {}
        if "protocolVersion" in result:
            headers[_VERSION] = str(result["protocolVersion"])
        return result

    def _answer(response: HTTPResponse, question: Json) -> Json:
        for message in web.messages(response):
            result = result_in(message, question)
            if result is not None:
                return result
            reply = reply_to(message)
            if reply is not None:
                web.post(web.url, reply, headers).close()
        raise TalkError(f"it does not answer {question['method']}")

    try:
        return _asked(exchange)
    finally:
        if _SESSION in headers:
            # A server need not support ending a session.
            with suppress(TalkError):
                web.open("DELETE", web.url, None, headers).close()


def _over_events(web: _Web) -> list[str]:
    """List the tools over one stream of answers.

    Its first event names the address for requests.
    """
    with closing(web.open("GET", web.url, None, {"Accept": _EVENTS})) as stream:
        web.require_kind(stream, _EVENTS)
        events = web.events(stream)
        named = next((event.data for event in events if event.name == "endpoint"), b"")
        address = web.same_origin(named.decode("utf-8", "replace"))

        def exchange(message: Json) -> Json:
            web.post(address, message, {}).close()
            return _awaited(message) if "id" in message else {}

        def _awaited(question: Json) -> Json:
            for event in events:
                for message in messages_in(event.data) if event.name == "message" else ():
                    result = result_in(message, question)
                    if result is not None:
                        return result
                    reply = reply_to(message)
                    if reply is not None:
                        web.post(address, reply, {}).close()
            raise TalkError("it ends the stream without an answer")

        return _asked(exchange)


class _Web:
    """Requests to one server, with its headers and a limit for its answers."""

    def __init__(self, entry: McpEntry, timeout: float) -> None:
        self.url = entry.url or ""
        self._headers = entry.headers
        self._timeout = timeout
        self._budget = Budget()
        try:
            parts = urlsplit(self.url)
            host = parts.hostname
        except ValueError:
            parts = urlsplit("")
            host = None
        if parts.scheme not in ("http", "https") or not host:
            raise TalkError("its address is not http or https")
        self._origin = parts.scheme, parts.netloc
        proxies = [ProxyHandler({})] if host in _LOOPBACK else []
        self._opener = build_opener(_NoRedirect, *proxies)

    def post(self, url: str, message: Json, headers: dict[str, str]) -> HTTPResponse:
        return self.open("POST", url, msgspec.json.encode(message), {**headers, "Content-Type": _JSON})

    def open(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> HTTPResponse:
        """Send a request. Raises TalkError, also for a status other than success."""
        try:
            request = Request(url, body, {**self._headers, **headers}, method=method)
            return self._opener.open(request, timeout=self._timeout)
        except HTTPError as error:
            error.close()
            hint = ": it wants a login" if error.code in _LOGIN else ""
            raise TalkError(f"HTTP {error.code} {error.reason}{hint}", error.code) from None
        except URLError as error:
            raise TalkError(f"it cannot be reached: {_why(error.reason)}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise TalkError(f"it cannot be reached: {_why(error)}") from None

    def same_origin(self, named: str) -> str:
        """Return an address that the server names.

        Raises TalkError for another host, which must not get the headers.
        """
        url = urljoin(self.url, named)
        parts = urlsplit(url)
        if not named or (parts.scheme, parts.netloc) != self._origin:
            raise TalkError("it names no address for requests")
        return url

    def messages(self, response: HTTPResponse) -> Iterator[Json]:
        """Yield the messages of a response, which is one body or a stream of events."""
        if _kind(response) == _EVENTS:
            for event in self.events(response):
                if event.name == "message":
                    yield from messages_in(event.data)
        else:
            self.require_kind(response, _JSON)
            yield from messages_in(self._read(lambda: response.read(self._budget.left + 1)))

    def events(self, response: HTTPResponse) -> Iterator[SseEvent]:
        """Yield the events of a stream."""
        reader = SseReader()
        while line := self._read(lambda: response.readline(self._budget.left + 1)):
            yield from reader.feed(line)

    def require_kind(self, response: HTTPResponse, wanted: str) -> None:
        kind = _kind(response)
        if kind != wanted:
            raise TalkError(f'it answers with "{kind}" instead of {wanted}')

    def _read(self, read: Callable[[], bytes]) -> bytes:
        try:
            return self._budget.spend(read())
        except (OSError, HTTPException, ValueError) as error:
            raise TalkError(f"its answer breaks off: {_why(error)}") from None


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, which would send the headers with their secrets elsewhere."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


def _kind(response: HTTPResponse) -> str:
    return response.headers.get_content_type()


def _why(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "it takes too long"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said or type(error).__name__
