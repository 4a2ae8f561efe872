"""Serving the dashboard on this machine alone."""

import logging
import sys
from contextlib import suppress
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import WSGIApplication

from autotune.errors import SettingsError
from autotune.optimizer.dashboard import read_only_app
from autotune.settings import Settings

LOOPBACK = "127.0.0.1"

logger = logging.getLogger(__name__)


def serve_dashboard(settings: Settings, port: int) -> None:
    """Serve the dashboard of a store until Ctrl-C.

    Raises:
        SettingsError: The port cannot be used.
        StoreUnreachableError: There is no such store.
        StudyNotFoundError: The store has never had a study.
    """
    with suppress(KeyboardInterrupt), open_server(read_only_app(settings.store), port) as server:
        address = f"http://{LOOPBACK}:{server.server_port}/"
        sys.stderr.write(f"dashboard, read-only, on {address} until Ctrl-C\n")
        server.serve_forever()


def open_server(app: WSGIApplication, port: int) -> WSGIServer:
    """Return a server that listens on the loopback interface; port 0 takes a free one.

    Raises:
        SettingsError: The port cannot be used; the message says why.
    """
    try:
        return make_server(LOOPBACK, port, app, _Server, _Handler)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(
            f"port {port} cannot be used: {reason}; give another with --port, or 0 for a free one"
        ) from error


class _Server(ThreadingMixIn, WSGIServer):
    """Answers requests side by side: a page asks for several things at once."""

    daemon_threads = True


class _Handler(WSGIRequestHandler):
    """Leaves the terminal to what a person needs to read."""

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
