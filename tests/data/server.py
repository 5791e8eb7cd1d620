"""A web server on 127.0.0.1 that answers each path by a script of the test."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


class Handler(BaseHTTPRequestHandler):
    """One request; `give` and `ranged` are what the tests' answers are made of."""

    server: "Server"
    timeout = 5

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        answer = self.server.answers.get(self.path)
        if answer is None:
            self.give(404, b"no such page")
        else:
            answer(self)

    def give(self, status: int, body: bytes, length: int | None = -1, **headers: str) -> None:
        """Send an answer; `length` -1 tells the body's own, None none at all."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        self.wfile.write(body)

    def ranged(self, content: bytes) -> None:
        """Send what a server with ranges sends."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not match:
            self.give(200, content)
        elif int(match[1]) >= len(content):
            self.give(416, b"", Content_Range=f"bytes */{len(content)}")
        else:
            start, size = int(match[1]), len(content)
            said = f"bytes {start}-{size - 1}/{size}"
            self.give(206, content[start:], Content_Range=said)

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Attributes: the answer of each path, what was asked (path, Range), and the end of waits."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Callable[[Handler], None]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.over = Event()

    def address(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    """A server in a thread of its own."""
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join(5)
