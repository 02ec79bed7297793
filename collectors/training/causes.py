"""What kind of failure a program's last words speak of. A row a sign; the first that fits wins."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_MAX = 4_096

USER_CODE = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "FileExistsError", "FileNotFoundError",
    "ImportError", "IndentationError", "IndexError", "IsADirectoryError", "KeyError",
    "LookupError", "ModuleNotFoundError", "NameError", "NotADirectoryError",
    "NotImplementedError", "OverflowError", "PermissionError", "RecursionError", "StopIteration",
    "SyntaxError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError",
    "ValidationError", "ValueError", "ZeroDivisionError",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sign:
    """Words, in lower case, that give a failure away.

    alone   the words mean a failure also where no traceback stands before them
    """

    class_: str
    detail: str
    words: tuple[str, ...]
    alone: bool = True


# In this order: what CUDA says of itself before what NCCL says of it, an out-of-memory error
# before other CUDA errors. "or a hardware error" in CUDA's words for a peer access proves none.
SIGNS = (
    Sign("cuda", "ecc", ("uncorrectable ecc", "cudaerroreccuncorrectable")),
    Sign("user_code", "device_assert", ("device-side assert",)),
    Sign("oom", "gpu_memory", (
        "outofmemoryerror", "cuda out of memory", "cuda error: out of memory",
        "hip out of memory", "npu out of memory",
    )),
    Sign("numerics", "nonfinite_gradient", (
        "unexpected result inf", "unexpected result nan", "found inf in local grad",
        "found nan in local grad",
    )),
    Sign("storage", "write", (
        "unexpected pos ", "no space left on device", "stale file handle", "input/output error",
        "transport endpoint is not connected",
    ), alone=False),
    Sign("cuda", "peer_access", ("invalid access of peer gpu memory",)),
    Sign("cuda", "launch_failure", ("unspecified launch failure",)),
    Sign("cuda", "illegal_access", ("illegal memory access",)),
    Sign("cuda", "illegal_instruction", ("illegal instruction was encountered",)),
    Sign("cuda", "launch_timeout", ("the launch timed out",)),
    Sign("cuda", "device_lost", ("no cuda-capable device", "cuda error: device not ready")),
    Sign("cuda", "unknown_error", ("cuda error: unknown error",)),
    Sign("cuda", "", ("cuda error: ", "cuda error encountered")),
    Sign("npu", "", ("hccl", "err02", "acl stream synchronize failed"), alone=False),
    Sign("nccl", "", ("nccl", "distbackenderror", "distnetworkerror", "processgroup", "tcpstore"),
         alone=False),
    Sign("cuda", "", (
        "cuda error", "acceleratorerror", "cudaerror", "cublas_status", "cudnn_status",
        "cuda driver error",
    ), alone=False),
)  # fmt: skip


def sign_of(text: str) -> Sign | None:
    """The first sign in a line."""
    words = text[:TEXT_MAX].lower()
    for sign in SIGNS:
        if any(word in words for word in sign.words):
            return sign
    return None


def failure_class(name: str, text: str) -> tuple[str, str]:
    """(class, detail) of an exception.

    name   the exception's name, with or without its module
    text   the whole line
    """
    sign = sign_of(f"{name} {text}")
    if sign is not None:
        return sign.class_, sign.detail
    return ("user_code" if name.rpartition(".")[2] in USER_CODE else "unknown"), ""
