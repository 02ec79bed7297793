"""Exit codes and signals of processes that died."""

from __future__ import annotations

import signal

_CLASS = {
    "SIGKILL": "killed", "SIGTERM": "terminated", "SIGINT": "terminated", "SIGABRT": "abort",
    "SIGSEGV": "crash", "SIGBUS": "crash", "SIGILL": "crash", "SIGFPE": "crash",
    "SIGXCPU": "terminated", "SIGHUP": "terminated", "SIGQUIT": "terminated",
    "SIGUSR1": "terminated", "SIGUSR2": "terminated",
}  # fmt: skip
_WORDS = {
    "killed": "SIGKILL", "terminated": "SIGTERM", "aborted": "SIGABRT", "bus error": "SIGBUS",
    "segmentation fault": "SIGSEGV", "illegal instruction": "SIGILL",
    "floating point exception": "SIGFPE", "hangup": "SIGHUP", "interrupt": "SIGINT",
}  # fmt: skip


def signal_of(exitcode: int) -> str | None:
    """The signal's name: Python says -9, a shell 137; None for an exit of its own."""
    number = -exitcode if exitcode < 0 else exitcode - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def signal_of_words(text: str) -> str | None:
    """The signal behind the words of Slurm and of shells: "Bus error", "Killed"."""
    return _WORDS.get(text.strip().lower().removesuffix(" (core dumped)"))


def exit_class(exitcode: int) -> str:
    """What an exit code alone says.

    1 is how Python leaves on an exception nobody caught: most likely the user's code. A signal
    names nobody: SIGKILL needs the kernel's or Slurm's word on memory, SIGABRT is how NCCL and
    CUDA end a process.
    """
    name = signal_of(exitcode)
    if name is not None:
        return signal_class(name)
    return "user_code" if exitcode == 1 else "unknown"


def signal_class(name: str) -> str:
    """The class of a death by signal."""
    return _CLASS.get(name, "unknown")
