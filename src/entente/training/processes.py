"""Starts, watches and ends the processes that train a run together, one per device. Lightning's DDP exchanges their gradients.

torchrun and SLURM start all processes themselves. Otherwise the first process of each machine starts the others with its own
command line. Lightning's launcher could also start them, but it omits the argument `train`, and if one process is killed, it
kills the others without saying why."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from lightning.fabric.strategies import DDPStrategy, ParallelStrategy

from entente import distributed
from entente.console.log import hide_log
from entente.errors import InputError, Interrupted
from entente.training.settings import TrainerSettings

log = logging.getLogger("entente")

STARTED_BY = "ENTENTE_STARTED_BY"  # environment variable with the ID of the process that started this one
GRACE = 20.0  # seconds for a process to end by itself after another has ended early
FOREVER = timedelta(days=7)  # DDP's timeout, long because `Others.watch` detects killed processes


@dataclass
class Others:
    """The other processes of the run that this process can watch: its children, or the parent that started it."""

    fabric: L.Fabric
    children: Sequence[subprocess.Popen[bytes]] = ()
    # ID of the process that started this one, or None if that process is not part of the run.
    parent: int | None = None
    ended: str = ""  # which other process has ended early, and how; empty if none has
    over: Event = field(default_factory=Event)  # set when this process has left the run

    def watch(self) -> None:
        """Waits until another process ends early, then ends this process if it has not left the run after GRACE seconds."""
        while not (ended := self._ended_early()):
            if self.over.wait(0.2):
                return
        self.ended = ended
        if self.over.wait(GRACE):
            return
        print(f"{ended}; the run can be resumed with resume=auto", file=sys.stderr, flush=True)
        self.end()
        os._exit(75)

    def lost(self, error: Exception) -> str:
        """Describes which process ended early, and how. Returns an empty string if that is not the cause of `error`."""
        if distributed.world_size() == 1 or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            return ""
        deadline = time.monotonic() + (2 * GRACE if self.parent else GRACE / 4)  # a child waits for its parent to kill it
        while not self.ended and time.monotonic() < deadline:
            time.sleep(0.1)
        self.ended = self.ended or "another process has ended"
        return self.ended

    def _ended_early(self) -> str:
        if self.parent not in (None, os.getppid()):
            return "process 0 has ended"
        for rank, child in enumerate(self.children, start=1):
            if code := child.poll():
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return f"process {rank} {how}"
        return ""

    def end(self, patience: float = 0.0) -> None:
        """Kills each child process that does not end within `patience` seconds."""
        for child in self.children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(patience)
            child.kill()
            child.wait()


@contextmanager
def connect(settings: TrainerSettings) -> Iterator[Others]:
    """Starts and connects all processes of a run. Within the context, `distributed.rank` and `world_size` refer to them. A
    run of one process needs neither. Raises InputError if torchrun has started the wrong number of processes."""
    before, fabric = dict(os.environ), build_fabric(settings)
    others = Others(fabric, parent=int(os.environ[STARTED_BY]) if STARTED_BY in os.environ else None)
    patience = 0.0
    try:
        if isinstance(fabric.strategy, ParallelStrategy):
            others.children = start_others(fabric.strategy, settings.num_nodes)
            Thread(target=others.watch, daemon=True).start()
            fabric.launch()
            if settings.threads:
                torch.set_num_threads(settings.threads)  # `launch` has set it to a share of the cores
            if distributed.rank():
                hide_log()
            devices = f"trainer.accelerator={settings.accelerator}, trainer.num_nodes={settings.num_nodes}"
            log.info("%d processes, threads in each: %d (%s)", distributed.world_size(), torch.get_num_threads(), devices)
        yield others
        distributed.wait_for_first()
        patience = GRACE
    except Interrupted:
        patience = GRACE
        raise
    finally:
        distributed.leave()
        others.end(patience)
        others.over.set()
        os.environ.clear()
        os.environ.update(before)


def build_fabric(settings: TrainerSettings) -> L.Fabric:
    """Returns the Fabric that connects the processes. Raises InputError if torchrun has not started one process per device."""
    given: dict[str, Any] = {"accelerator": settings.accelerator, "devices": settings.devices, "num_nodes": settings.num_nodes}
    fabric = L.Fabric(**given, strategy=settings.strategy)
    wanted = 1
    if isinstance(fabric.strategy, ParallelStrategy):
        if isinstance(fabric.strategy, DDPStrategy) and settings.strategy in ("auto", "ddp"):
            fabric = L.Fabric(**given, strategy=DDPStrategy(timeout=FOREVER))
        strategy: Any = fabric.strategy
        wanted = strategy.num_processes * settings.num_nodes
    started = int(os.environ["WORLD_SIZE"]) if TorchElasticEnvironment.detect() else wanted
    if started != wanted:
        how = f"trainer.devices={settings.devices} trainer.num_nodes={settings.num_nodes}"
        raise InputError(f"{how}: torchrun has started {started} processes; start one per device")
    return fabric


def start_others(strategy: Any, nodes: int) -> list[subprocess.Popen[bytes]]:
    """Starts the other processes on this machine with this process's command line, unless they are already running."""
    environment, count = strategy.cluster_environment, strategy.num_processes
    if environment.creates_processes_externally:
        return []
    os.environ |= {
        "MASTER_ADDR": environment.main_address,
        "MASTER_PORT": str(environment.main_port),
        "NODE_RANK": str(environment.node_rank()),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(count * nodes),
    }
    command = [sys.executable, *sys.orig_argv[1:]]
    return [
        subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": str(rank), STARTED_BY: str(os.getpid())})
        for rank in range(1, count)
    ]
