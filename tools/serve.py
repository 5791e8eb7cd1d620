"""Serve the study of a sweep, so that workers on other machines can join it.

    python -m tools.serve runs/sweep_tau --port 13000
    python -m tools.serve runs/sweep_tau --host 0.0.0.0 --port 13000
    python -m tools.serve runs/served --new

A worker there takes `--set sweep.storage=grpc://HOST:13000`. Nobody is asked for a password:
whoever reaches the port can read and change the study. So only this machine is listened to unless
--host says otherwise. With --new the study need not be there yet: sweep.py itself may then keep it
here, with the same setting. Ctrl-C ends the server; workers try again until it is back.
"""

import argparse
import logging
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli, exit_codes

JOURNAL = Path("sweep", "study.journal")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with exit_codes.user_errors(loads="optuna"):
        check_free(arguments.host, arguments.port)
        serve(arguments)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = cli.tool_parser("serve", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="the sweep's run directory")
    parser.add_argument("--host", default="127.0.0.1", help="the address listened to")
    parser.add_argument("--port", type=_port, default=13000, help="its port")
    parser.add_argument(
        "--storage", metavar="URL", help="the sweep's database (default: what the run folder says)"
    )
    parser.add_argument("--new", action="store_true", help="make the study's storage if need be")
    return parser.parse_args(argv)


def serve(arguments: argparse.Namespace) -> None:
    """Open the study and answer until Ctrl-C."""
    import optuna
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import run_grpc_proxy_server

    from hpo.config import shown
    from hpo.storage import check_grpc, open_storage

    check_grpc()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # A call that fails is told to its worker; here it would be a traceback each time.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    journal: Path = arguments.run / JOURNAL
    where: str = arguments.storage or _storage_of(arguments.run)
    try:
        storage = open_storage(where, journal, create=arguments.new)
        served = journal if where == "journal" else shown(where)
        host = arguments.host
        if host in {"0.0.0.0", "::", "[::]"}:
            host = socket.gethostname()
        setting = f"--set sweep.storage=grpc://{host}:{arguments.port}"
        print(f"serving {served}; workers join with {setting}", flush=True)
        # Calls that are under way are finished first.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            run_grpc_proxy_server(storage, host=arguments.host, port=arguments.port)
    except KeyboardInterrupt:
        print("the server has ended; the study stays as it is")


def _storage_of(run: Path) -> str:
    """Where the sweep of a run folder keeps its study; a journal where nothing was started yet."""
    from pipeline.experiment import load_experiment

    saved = run / "sweep" / "experiment.yaml"
    sweep = load_experiment(saved).sweep if saved.exists() else None
    return "journal" if sweep is None else sweep.storage


def check_free(host: str, port: int) -> None:
    """Refuse a port that another program listens to, or an address of another machine.

    gRPC would share it with another server of gRPC, and each would answer half of the calls.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC does: connections of a server before that linger are no hindrance.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ValueError(
            f"{host}:{port} cannot be listened to ({error.strerror}); "
            "give another --port, or an address of this machine as --host"
        ) from None


def _port(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port, expected 1 to 65535")


if __name__ == "__main__":
    sys.exit(main())
