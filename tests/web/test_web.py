"""`atomic chat --web` in a real browser, and requests that it must refuse."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.emulator import Emulator
from tests.support.fake_acp import AGENT, steps, use_fake_acp
from tests.support.processes import is_alive, kill
from tests.support.user import User
from tests.support.waits import wait_until
from tests.support.window import ROOT, tree

pytestmark = pytest.mark.ci

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, WebSocket

SERVER = (sys.executable, "-m", "tests.web.scripted_web", "serve")
ATOMIC = (sys.executable, "-P", "-m", "atomic")


class Server:
    """A server process and the address that it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.address: str = process.stdout.readline().split()[-1]
        self.base = self.address.partition("?")[0]
        self.name: str = urlsplit(self.base).netloc

    def ask(self, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage]:
        """Send a request and return the status and the headers of the response."""
        connection = http.client.HTTPConnection(self.name, timeout=20)
        connection.putrequest("GET", path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers

    def enter(self) -> str:
        """Open the address and return the cookie."""
        status, headers = self.ask("/?" + urlsplit(self.address).query)
        assert status == 303
        assert headers["Location"] == "/"
        return headers["Set-Cookie"]


@contextmanager
def run_server_process(env: dict[str, str], command: Sequence[str] = SERVER, cwd: Path = ROOT) -> Generator[Server]:
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield Server(process)
    finally:
        for pid in tree(process.pid):
            kill(pid)
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def server(env: dict[str, str]) -> Iterator[Server]:
    with run_server_process(env) as one:
        yield one


def test_requests_without_the_token_are_refused(server: Server) -> None:
    for path in ("/", "/?token=wrong", "/focus.js", "/static/js/textual.js", "/ws", "/download/x", "/?token="):
        assert server.ask(path)[0] == 403, path


def test_the_address_works_once_and_scripts_cannot_read_the_cookie(server: Server) -> None:
    cookie = server.enter()
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert server.ask("/?" + urlsplit(server.address).query)[0] == 403
    status, headers = server.ask("/", Cookie=cookie.partition(";")[0])
    assert status == 200
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


FOREIGN_HEADERS = (
    {"Host": "evil.example"},
    {"Host": "127.0.0.1"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://127.0.0.1"},
)


def test_another_host_or_origin_is_refused_even_with_the_cookie(server: Server) -> None:
    cookie = server.enter().partition(";")[0]
    for headers in FOREIGN_HEADERS:
        for path in ("/", "/ws", "/static/js/textual.js"):
            assert server.ask(path, Cookie=cookie, **headers)[0] == 403, (path, headers)
    assert server.ask("/", Cookie=cookie)[0] == 200
    assert server.ask("/ws", Cookie=cookie)[0] == 403, "a websocket without an origin"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_ends_the_server(server: Server, number: signal.Signals) -> None:
    server.process.send_signal(number)
    assert server.process.wait(20) == 128 + number


# In a browser.


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    # `make test` collects this file without playwright.
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program is not None, "make setup installs it"
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


class Tab:
    """A page and an emulator of its terminal, because a canvas has no text."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.screen = Emulator(80, 24)
        self.is_open = False
        self.requests: list[str] = []
        page.on("websocket", self._opened)
        page.on("request", lambda request: self.requests.append(request.url))

    def _opened(self, socket: WebSocket) -> None:
        self.is_open = True
        width, height = (int(part.partition("=")[2]) for part in urlsplit(socket.url).query.split("&")[:2])
        self.screen = Emulator(width, height)
        socket.on("framereceived", self._receive)
        socket.on("close", lambda _: setattr(self, "is_open", False))

    def _receive(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            self.screen.feed(data)

    def open(self, address: str, words: str = "opus") -> None:
        self.page.goto(address)
        self.page.wait_for_selector("body.-first-byte", state="attached", timeout=30_000)
        self.shows(words)

    def send(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.shows(text)
        self.page.keyboard.press("Enter")

    def shows(self, words: str) -> None:
        wait_until(lambda: self._check(lambda: self.screen.has(words)), f"{words!r}:\n{self.screen.text}")

    def closes(self) -> None:
        wait_until(lambda: self._check(lambda: not self.is_open), "end of the connection")

    def _check(self, condition: object) -> bool:
        """Let playwright deliver frames, then check the condition."""
        assert callable(condition)
        self.page.wait_for_timeout(20)
        return bool(condition())


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Tab]:
    context = chromium.new_context(viewport={"width": 1000, "height": 640})
    yield Tab(context.new_page())
    context.close()


def test_a_conversation_in_a_browser(server: Server, tab: Tab) -> None:
    tab.open(server.address)
    assert "token" not in tab.page.url
    tab.send("hello browser")
    tab.shows("You said: hello browser")
    tab.send("stream 100 0")
    tab.shows("STREAM-DONE")
    tab.send("ask")
    tab.shows("Which branch?")
    # The question opens by itself, unless a key was pressed just before.
    if not tab.screen.has("F6 reopens"):
        tab.page.keyboard.press("F6")
    tab.shows("F6 reopens")
    tab.page.keyboard.press("Enter")
    tab.shows("Answered: main")
    assert all(url.startswith((server.base, "data:", "ws:")) for url in tab.requests), tab.requests


def test_the_web_command_works_with_the_users_agent(tmp_path: Path, tab: Tab) -> None:
    user = User(tmp_path)
    use_fake_acp(user)
    with run_server_process(user.env, (*ATOMIC, "chat", "--web", "-a", AGENT), user.project) as server:
        tab.open(server.address, "puppet")
        tab.send(steps({"say": "Aye"}, {"say": " aye."}))
        tab.shows("Aye aye.")
        tab.page.keyboard.press("Control+d")
        wait_until(lambda: tab.page.wait_for_timeout(20) or server.process.poll() is not None, "end of the server")
        assert server.process.returncode == 0
        assert server.process.stdout is not None
        assert "Resume with: atomic chat --resume" in server.process.stdout.read()


def test_a_page_of_another_origin_cannot_connect(server: Server, tab: Tab) -> None:
    tab.open(server.address)
    page = tab.page.context.new_page()
    page.goto("data:text/html,<h1>evil</h1>")
    code = f"""new Promise(done => {{
        const socket = new WebSocket("ws://{server.name}/ws");
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
    }})"""
    assert page.evaluate(code) == "refused"
    page.close()


def test_screens_end_when_the_server_is_killed(server: Server, tab: Tab) -> None:
    tab.open(server.address)
    tab.send("hang")
    tab.shows("I work and work.")
    below = tree(server.process.pid)[1:]
    assert len(below) >= 2, "a screen and its engine"
    os.kill(server.process.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, below)), "end of the screen")
    tab.closes()


@pytest.mark.full
def test_the_server_ends_with_its_screen(server: Server, tab: Tab) -> None:
    tab.open(server.address)
    tab.send("hello")
    tab.shows("You said: hello")
    tab.page.keyboard.press("Control+d")
    wait_until(lambda: tab.page.wait_for_timeout(20) or server.process.poll() is not None, "end of the server")
    assert server.process.returncode == 0


@pytest.mark.full
def test_the_server_ends_when_its_screen_is_killed(server: Server, tab: Tab) -> None:
    tab.open(server.address)
    os.kill(tree(server.process.pid)[1], signal.SIGKILL)
    tab.closes()
    assert server.process.wait(20) == 1


@pytest.mark.full
def test_closing_a_tab_ends_its_screen_and_it_can_be_reopened(server: Server, tab: Tab) -> None:
    tab.open(server.address)
    below = tree(server.process.pid)[1:]
    tab.page.reload()
    wait_until(lambda: tab.page.wait_for_timeout(20) or not any(map(is_alive, below)), "end of the first screen")
    tab.page.wait_for_selector("body.-first-byte", state="attached", timeout=30_000)
    assert server.process.poll() is None
