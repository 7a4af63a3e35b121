"""Serve the screen to a browser on this machine, and only to its user.

* It listens only on 127.0.0.1 and accepts only that host name, against DNS rebinding.
* The printed address has a token that works once. It is exchanged for a cookie that is
  HttpOnly and SameSite=Strict.
* A request with an Origin must come from the own page; the websocket requires an Origin.

The server ends when a screen ends by itself. Screens end with the server.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from atomic.base.errors import AtomicError, ExitCode

HOST = "127.0.0.1"
GRACE = 5.0  # seconds for a screen to end normally
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PortError(AtomicError):
    """The port cannot be used."""

    exit_code = ExitCode.FAILED

    def __init__(self, port: int, why: str) -> None:
        super().__init__(f"--port {port}: {why}")


def run_server(command: Sequence[str], port: int) -> int:
    """Serve until a signal or the end of the screen, and return the exit code."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise PortError(port, error.strerror or str(error)) from error
        return WebServer(command, listening).run()


class WebServer(Server):
    """textual-serve's server with access control."""

    def __init__(self, command: Sequence[str], listening: socket.socket) -> None:
        port: int = listening.getsockname()[1]
        super().__init__(command[0], HOST, port, title="atomic")  # pyright: ignore[reportUnknownMemberType]  # upstream
        self.argv = tuple(command)
        self._listening = listening
        self._token: str | None = secrets.token_urlsafe(32)
        self._cookie_name = f"atomic-{port}"
        self._cookie = secrets.token_urlsafe(32)
        self._names = {f"{HOST}:{port}", f"localhost:{port}"}
        self._screens: set[ScreenService] = set()
        self._exit_code: int = ExitCode.DONE
        self._over: asyncio.Event

    @property
    def address(self) -> str:
        """Return the address to print. It works once."""
        return f"http://{HOST}:{self.port}/?token={self._token}"

    def run(self) -> int:
        """Serve until `end` is called, and return the exit code."""
        logging.getLogger("textual-serve").addHandler(logging.NullHandler())
        return asyncio.run(self._serve())

    async def _serve(self) -> int:
        self._over = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.end, ExitCode.SIGNALLED + number)
        runner = web.AppRunner(await self._make_app(), access_log=None, shutdown_timeout=GRACE)
        await runner.setup()
        await web.SockSite(runner, self._listening).start()
        print(f"Atomic is at {self.address}\nThe address works once. Ctrl+C ends it.", flush=True)
        await self._over.wait()
        await runner.cleanup()
        return self._exit_code

    def end(self, exit_code: int) -> None:
        """End the server, and with it all screens."""
        self._exit_code = exit_code
        self._over.set()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        app.router.add_get("/focus.js", self._handle_focus)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: `_serve` prints the address."""

    async def on_shutdown(self, app: web.Application) -> None:
        """End the screens before the connections."""
        await asyncio.gather(*(screen.end() for screen in tuple(self._screens)))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._is_ours(request):
            raise web.HTTPForbidden(text="This screen belongs to another address.\n")
        if request.path == "/" and "token" in request.query:
            return self._exchange_token(request)
        if not self._has_cookie(request):
            raise web.HTTPForbidden(text="Open the address that `atomic chat --web` printed.\n")
        return await handler(request)

    def _is_ours(self, request: web.Request) -> bool:
        """Return whether host and origin are this server."""
        if request.host not in self._names:
            return False
        origin = request.headers.get("Origin")
        if origin is None:
            return request.path != "/ws"
        return origin == f"http://{request.host}"

    def _exchange_token(self, request: web.Request) -> web.StreamResponse:
        """Exchange the token for a cookie.

        The address in the browser's history is useless then.
        """
        given = request.query["token"].encode()
        has_token = self._token is not None and secrets.compare_digest(given, self._token.encode())
        if not has_token and not self._has_cookie(request):
            raise web.HTTPForbidden(text="This address was used already, or it is not from this server.\n")
        inside = web.HTTPSeeOther("/")
        if has_token:
            self._token = None
            inside.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/")
        raise inside

    def _has_cookie(self, request: web.Request) -> bool:
        given = request.cookies.get(self._cookie_name, "").encode()
        return secrets.compare_digest(given, self._cookie.encode())

    async def handle_index(self, request: web.Request) -> web.Response:
        """Return our own page: the one of textual-serve loads its font from another
        server.
        """
        size = max(6, min(48, to_int(request.query.get("fontsize", "16"), 16)))
        page = PAGE.replace("{host}", request.host).replace("{size}", str(size))
        headers = {
            "Content-Security-Policy": POLICY.replace("{host}", request.host),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(text=page, content_type="text/html", headers=headers)

    async def _handle_focus(self, request: web.Request) -> web.Response:
        return web.Response(text=FOCUS, content_type="text/javascript", headers={"Cache-Control": "no-store"})

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run a screen for one browser. Each ends with the other."""
        websocket = web.WebSocketResponse(heartbeat=15, timeout=1.0)
        await websocket.prepare(request)
        screen = ScreenService(self, websocket)
        self._screens.add(screen)
        width, height = (to_int(request.query.get(name, ""), or_) for name, or_ in (("width", 80), ("height", 24)))
        try:
            await screen.start(width, height)
            with suppress(ValueError, TypeError, LookupError, AssertionError):  # not what our page sends
                await self._process_messages(websocket, screen)
        finally:
            await screen.stop()
            self._screens.discard(screen)
            await websocket.close()
        return websocket


class ScreenService(AppService):
    """The process of one screen."""

    def __init__(self, server: WebServer, websocket: web.WebSocketResponse) -> None:
        super().__init__(
            server.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=self._close,
            download_manager=server.download_manager,
        )
        self._server = server
        self._websocket = websocket
        self._is_stopping = False
        self._has_left = False

    async def _close(self) -> None:
        """Note that the screen ends by itself, and close the connection."""
        self._has_left = not self._is_stopping
        await self._websocket.close()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start the process as textual-serve does, but without a shell."""
        environment = self._build_environment(width=width, height=height)
        self._process = await create_subprocess_exec(
            *self._server.argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
        self._stdin = self._process.stdin
        return self._process

    async def run(self) -> None:
        """Wait for the end of the screen. If it ended by itself, end the server too."""
        with suppress(ConnectionError):  # the browser has gone; `stop` follows
            await super().run()
        assert self._process is not None
        code = await self._process.wait()
        if self._has_left or not self._is_stopping:
            self._server.end(code if code >= 0 else ExitCode.FAILED)

    async def stop(self) -> None:
        """Ask the screen to end, and kill it after 5 s. Its engine ends with it."""
        self._is_stopping = True
        if self._task is None or self._process is None:
            return
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(GRACE):
                await self.send_meta({"type": "quit"})
                await asyncio.shield(self._task)
        if self._process.returncode is None:
            self._process.kill()
        await self._task

    async def end(self) -> None:
        """Stop, and close the connection."""
        await self.stop()
        await self._websocket.close()


# The page loads files only from its own server.

# textual.js sets styles from code. It also calls `new Function` once, and works without
# it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src ws://{host}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

PAGE = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>atomic</title>
    <link rel="stylesheet" href="/static/css/xterm.css">
    <script src="/static/js/textual.js"></script>
    <script src="/focus.js"></script>
    <style>
      @font-face {
        font-family: "Roboto Mono";
        src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf");
      }
      body { background: #11141a; color: #d7dae0; font-family: "Roboto Mono", monospace; margin: 0; }
      .textual-terminal { position: absolute; inset: 0; opacity: 0; }
      body.-first-byte .textual-terminal { opacity: 1; }
      .note { position: absolute; inset: 0; display: flex; align-items: center; justify-content: center; }
      body.-first-byte .starting { display: none; }
      .over { display: none; background: #11141a; z-index: 10; }
      body.-closed .over { display: flex; }
      a { color: #8ab4f8; }
    </style>
  </head>
  <body>
    <div class="note starting">Starting …</div>
    <div class="note over"><p>The screen has ended. <a href="/">Start again</a> if the server still runs.</p></div>
    <div id="terminal" class="textual-terminal"
      data-session-websocket-url="ws://{host}/ws" data-font-size="{size}"></div>
  </body>
</html>
"""

FOCUS = """// Give the terminal the keyboard as soon as it shows something.
new MutationObserver((_, observer) => {
  const input = document.querySelector(".xterm-helper-textarea");
  if (input && document.body.classList.contains("-first-byte")) {
    input.focus();
    observer.disconnect();
  }
}).observe(document.documentElement, {subtree: true, childList: true, attributeFilter: ["class"]});
"""
