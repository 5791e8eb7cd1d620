"""What torchrun told this process, and who of several processes prints a message.

Imports nothing heavy: a script asks before torch is there.
"""

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_STORE_PATIENCE = timedelta(seconds=5)


@dataclass(frozen=True)
class Launch:
    """One of several processes, by torchrun's variables; `local_` is of its machine alone."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    machines: int


def launched() -> Launch | None:
    """How this process was launched; None where it is the only one."""
    if not all(os.environ.get(name) for name in _NAMES) or os.environ["WORLD_SIZE"] == "1":
        return None
    rank, world, local_rank, local_world = (int(os.environ[name]) for name in _NAMES[:4])
    return Launch(rank, world, local_rank, local_world, int(os.environ.get("GROUP_WORLD_SIZE", 1)))


def is_first_to_say(text: str, *, lost: bool) -> bool:
    """Whether this process prints a message that others may have as well; each is printed once.

    That another process is `lost` is news only where nobody said why. The launcher's store counts;
    where it cannot be reached everybody speaks.
    """
    if launched() is None:
        return True
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    try:
        # torch itself would try for long, and complain.
        socket.create_connection(address, _STORE_PATIENCE.seconds).close()
    except OSError:
        return True
    from torch.distributed.rendezvous import rendezvous

    try:
        store, _, _ = next(iter(rendezvous("env://", timeout=_STORE_PATIENCE)))
        is_first_message = store.add("parnas/said", 1) == 1
        return is_first_message if lost else store.add(sha256(text.encode()).hexdigest(), 1) == 1
    except RuntimeError:
        return True
