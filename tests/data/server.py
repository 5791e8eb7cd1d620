"""A web server on 127.0.0.1 that answers each path by a script of the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


class Handler(BaseHTTPRequestHandler):
    """One request; `give` is what the tests' answers are made of."""

    server: "Server"
    timeout = 5

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
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

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Attributes: the answer of each path, the paths asked for, and the end of waits."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Callable[[Handler], None]] = {}
        self.asked: list[str] = []
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
