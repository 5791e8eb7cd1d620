"""The processes that train one model together: the part of each, and what they tell one another.

Every process has the whole model and a share of the rows of each batch. Its memories stay with it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.launch import launched
from training.signals import Lost
from utils.cores import usable_cores

# Within a step nobody waits long; for a tokenizer, a validation or the first rank's files they do.
STEP_PATIENCE = timedelta(seconds=45)
PATIENCE = timedelta(minutes=30)
T = TypeVar("T")


@contextmanager
def _or_lost() -> Iterator[None]:
    """Say of a failed exchange that a process is lost; torch has no error of its own for that."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].rpartition("] ")[2].partition(". ")[0][:200]
        raise Lost(f"another process of this run was lost ({reason})") from error


@dataclass(frozen=True)
class Ranks:
    """One of several processes; every method is a no-op where there is one only.

    Whatever exchanges something must be called by all processes in the same order. `local_` is of
    the processes of one machine; the group `steps` exchanges within a step, with little patience.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    steps: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes, prints and tests."""
        return self.rank == 0

    @property
    def threads(self) -> int:
        """This process's share of the cores that its machine lends."""
        return max(1, usable_cores() // self.local_world)

    def rows(self, count: int) -> slice:
        """This rank's share of rows; shares differ by at most one."""
        return slice(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    def count(self, rows: int) -> int:
        """How many of the rows are this rank's."""
        mine = self.rows(rows)
        return mine.stop - mine.start

    def seed(self, seed: int) -> None:
        """Give every rank but the first random numbers of its own, once the weights are made."""
        if self.rank:
            words = np.random.SeedSequence([seed, self.rank]).generate_state(1, np.uint64)
            torch.manual_seed(int(words[0]) % 2**63)

    def sum_gradients(self, parameters: Iterable[nn.Parameter], *others: Tensor) -> None:
        """Add up the gradients over all ranks, and other tensors with them.

        What no rank has a gradient for keeps none, so that no optimiser moves it; a gradient that
        some rank lacks counts as zero there.
        """
        if self.world == 1:
            return
        trained = list(parameters)
        has_gradient = torch.tensor([p.grad is not None for p in trained], dtype=torch.uint8)
        with _or_lost():
            dist.all_reduce(has_gradient, dist.ReduceOp.MAX, group=self.steps)
        for parameter, anywhere in zip(trained, has_gradient.tolist(), strict=True):
            if anywhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.sum([*(p.grad for p in trained if p.grad is not None), *others])

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Add up each tensor over all ranks, in its place; those of one type and device at once."""
        if self.world == 1:
            return
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for alike in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in alike])
            with _or_lost():
                dist.all_reduce(flat, group=self.steps)
            parts = torch.split(flat, [tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def all_max_async(self, number: int) -> Callable[[], int]:
        """Begin to find the largest of all ranks' numbers; what is returned waits for it."""
        if self.world == 1:
            return lambda: number
        largest = torch.tensor([number])
        with _or_lost():
            work = dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.steps, async_op=True)

        def answer() -> int:
            with _or_lost():
                work.wait()
            return int(largest)

        return answer

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sum of each number over all ranks, in float64."""
        total_N = torch.tensor(numbers, dtype=torch.float64)
        if self.world > 1:
            with _or_lost():
                dist.all_reduce(total_N)
        return total_N.tolist()

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        self.total([0.0])

    def all_say(self, value: T) -> list[T]:
        """What every rank has to say, in their order."""
        if self.world == 1:
            return [value]
        said: list[Any] = [None] * self.world
        with _or_lost():
            dist.all_gather_object(said, value)
        return said

    def gather(self, tensor: Tensor) -> Tensor:
        """The rows of all ranks in order, on the CPU where there are several ranks."""
        if self.world == 1:
            return tensor
        parts = []
        for rank, count in enumerate(self.all_say(len(tensor))):
            part = tensor.new_empty(count, *tensor.shape[1:])
            part = tensor.contiguous() if rank == self.rank else part
            with _or_lost():
                dist.broadcast(part, src=rank)
            parts.append(part.cpu())
        return torch.cat(parts)

    def broadcast_str(self, text: str | None) -> str:
        """The text of the first rank, on all ranks."""
        first = self.all_say(text)[0]
        assert first is not None
        return first


ALONE = Ranks()


def join() -> Ranks:
    """Meet the other processes that torchrun has started, if any; Lost: they do not come."""
    launch = launched()
    if launch is None:
        return ALONE
    # The host waits for NCCL as for gloo: else torch would abort it behind a kernel that hangs.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    # What is on the CPU (alpha, all agreements) goes through gloo also where weights are on GPUs.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with _or_lost():
        dist.init_process_group(backend, timeout=PATIENCE)
        steps = dist.new_group(timeout=STEP_PATIENCE)
    return Ranks(launch.rank, launch.world, launch.local_rank, launch.local_world, steps)
