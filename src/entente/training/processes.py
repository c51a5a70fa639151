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
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.fabric.strategies import DDPStrategy, ParallelStrategy

from entente import distributed
from entente.console.endings import default_signals
from entente.console.log import hide_log
from entente.errors import Diverged, InputError, Interrupted, reason
from entente.training.settings import TrainerSettings

log = logging.getLogger("entente")

STARTED_BY = "ENTENTE_STARTED_BY"  # environment variable with the ID of the process that started this one
GRACE = 20.0  # seconds for a process to leave the run by itself after another has ended early
LAST_MOMENTS = 2.0  # seconds for the other processes to end by themselves after the first has left the run
ERRORS = {2: InputError, 3: Diverged, 75: Interrupted}  # by exit code


class Ended(NamedTuple):
    """How a process ended early, and the exit code for the others: its own if resuming the run would not help, else 75."""

    how: str
    code: int = 75

    def error(self) -> Exception:
        return ERRORS[self.code](self.how + ("; the run can be resumed with resume=auto" if self.code == 75 else ""))


@dataclass
class Others:
    """The other processes of the run that this process can watch: its children, or the parent that started it."""

    fabric: L.Fabric
    children: Sequence[subprocess.Popen[bytes]] = ()
    # ID of the process that started this one, or None if that process is not part of the run.
    parent: int | None = None
    first: int = 0  # the rank of the first process of this machine
    ended: Ended | None = None  # set when another process has ended early
    over: Event = field(default_factory=Event)  # set when this process has left the run

    def watch(self) -> None:
        """Waits until another process ends early, then ends this process if it has not left the run after GRACE seconds."""
        while not (ended := self._ended_early()):
            if self.over.wait(0.2):
                return
        self.ended = ended
        if self.over.wait(GRACE):
            return
        try:
            print(ended.error(), file=sys.stderr, flush=True)
        finally:  # even if the terminal is gone
            self.end()
            os._exit(ended.code)

    def lost(self, error: Exception) -> Ended | None:
        """Returns how another process ended early, or None if that is not the cause of `error`."""
        if distributed.world_size() == 1 or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            return None
        deadline = time.monotonic() + (2 * GRACE if self.parent else GRACE / 4)  # a child waits for its parent to kill it
        while not self.ended and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.ended or Ended(f"another process has ended ({reason(error)})")

    def _ended_early(self) -> Ended | None:
        if self.parent not in (None, os.getppid()):
            return Ended(f"process {self.first} has ended")
        for rank, child in enumerate(self.children, start=self.first + 1):
            if code := child.poll():
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return Ended(f"process {rank} {how}", code if code in ERRORS else 75)
        return None

    def end(self, patience: float = 0.0) -> None:
        """Kills the child processes that do not end within `patience` seconds."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(child.poll() is None for child in self.children):
            time.sleep(0.05)
        for child in self.children:
            child.kill()
            child.wait()


@contextmanager
def connect(settings: TrainerSettings) -> Iterator[Others]:
    """Starts and connects all processes of a run. Within the context, `distributed.rank` and `world_size` refer to them. A
    run of one process needs neither. Raises InputError if torchrun or SLURM has started the wrong number of processes, and
    Interrupted if another process ends early."""
    before, fabric = dict(os.environ), build_fabric(settings)
    others = Others(fabric, parent=int(os.environ[STARTED_BY]) if STARTED_BY in os.environ else None)
    patience = 0.0
    try:
        if isinstance(fabric.strategy, ParallelStrategy):
            others.children, others.first = start_others(fabric.strategy, settings.num_nodes)
            Thread(target=others.watch, daemon=True).start()
            _launch(fabric, others, fabric.strategy)
            if settings.threads:
                torch.set_num_threads(settings.threads)  # `launch` has set it to a share of the cores
            if distributed.rank():
                hide_log()
            devices = f"trainer.accelerator={settings.accelerator}, trainer.num_nodes={settings.num_nodes}"
            log.info("%d processes, threads in each: %d (%s)", distributed.world_size(), torch.get_num_threads(), devices)
        yield others
        distributed.wait_for_first()
        patience = LAST_MOMENTS
    except Interrupted:
        patience = LAST_MOMENTS
        raise
    except Exception as error:
        if ended := others.lost(error):
            raise ended.error() from None
        if others.parent:
            time.sleep(LAST_MOMENTS)  # if the first process has the same error, it ends this one before it repeats the message
        raise
    finally:
        others.over.set()
        distributed.leave()
        others.end(patience)
        os.environ.clear()
        os.environ.update(before)


def _launch(fabric: L.Fabric, others: Others, strategy: Any) -> None:
    """Connects the processes of all machines, once they have started."""
    if not strategy.cluster_environment.local_rank():
        log.info("waiting until all %d processes have started", strategy.cluster_environment.world_size())
    try:
        with default_signals():
            fabric.launch()
    except (RuntimeError, ValueError) as error:  # for example, another program uses MASTER_PORT, or SLURM has other nodes
        time.sleep(LAST_MOMENTS)  # by then, `watch` knows whether another process has ended
        raise others.ended.error() if others.ended else InputError(f"the processes cannot connect ({reason(error)})") from None


def build_fabric(settings: TrainerSettings) -> L.Fabric:
    """Returns the Fabric that connects the processes. Raises InputError if torchrun or SLURM has not started one per device."""
    given: dict[str, Any] = {"accelerator": settings.accelerator, "devices": settings.devices, "num_nodes": settings.num_nodes}
    fabric = L.Fabric(**given, strategy=settings.strategy)
    wanted, launcher, started = 1, "torchrun", None
    if TorchElasticEnvironment.detect():
        started = int(os.environ["WORLD_SIZE"])
    elif SLURMEnvironment.detect() and "SLURM_STEP_NUM_TASKS" in os.environ:  # set by srun
        launcher, started = "SLURM", int(os.environ["SLURM_STEP_NUM_TASKS"])
    if isinstance(fabric.strategy, ParallelStrategy):
        if isinstance(fabric.strategy, DDPStrategy) and settings.strategy in ("auto", "ddp"):
            fabric = L.Fabric(**given, strategy=DDPStrategy(timeout=distributed.FOREVER))
        strategy: Any = fabric.strategy
        wanted = strategy.num_processes * settings.num_nodes
        if isinstance(strategy.cluster_environment, SLURMEnvironment):
            launcher, started = "SLURM", strategy.cluster_environment.world_size()
    if started not in (None, wanted):
        how = f"trainer.devices={settings.devices} trainer.num_nodes={settings.num_nodes}"
        raise InputError(f"{how}: {launcher} has started {started} processes; start one per device")
    return fabric


def start_others(strategy: Any, nodes: int) -> tuple[list[subprocess.Popen[bytes]], int]:
    """Starts the other processes on this machine with this process's command line, unless they are already running. Returns
    them, and the rank of the first process of this machine."""
    environment, count = strategy.cluster_environment, strategy.num_processes
    first = environment.node_rank() * count
    if environment.creates_processes_externally:
        return [], first
    os.environ |= {
        "MASTER_ADDR": environment.main_address,
        "MASTER_PORT": str(environment.main_port),
        "NODE_RANK": str(environment.node_rank()),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(count * nodes),
    }
    command = [sys.executable, *sys.orig_argv[1:]]
    others = [
        subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": str(rank), STARTED_BY: str(os.getpid())})
        for rank in range(1, count)
    ]
    return others, first
