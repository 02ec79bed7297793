"""What kind of failure a program's last words speak of. Pure."""

from __future__ import annotations

USER_CODE = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "FileNotFoundError", "ImportError",
    "IndentationError", "IndexError", "IsADirectoryError", "KeyError", "LookupError",
    "ModuleNotFoundError", "NameError", "NotADirectoryError", "NotImplementedError",
    "OverflowError", "RecursionError", "StopIteration", "SyntaxError", "TypeError",
    "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "ValidationError",
    "ValueError", "ZeroDivisionError",
})  # fmt: skip

# In this order: an out-of-memory error is also a CUDA error, and NCCL's words quote CUDA's.
_OOM = ("outofmemoryerror", "cuda out of memory", "cuda error: out of memory")
_NCCL = ("nccl", "distbackenderror", "distnetworkerror", "processgroup", "tcpstore")
_CUDA = ("cuda error", "acceleratorerror", "cudaerror", "cublas_status", "cudnn_status",
         "device-side assert", "cuda driver error", "uncorrectable ecc", "unspecified launch"
         )  # fmt: skip


def failure_class(name: str, text: str) -> str:
    """ "user_code", "cuda", "nccl", "oom" or "unknown".

    name   the exception's name, with or without its module
    text   the whole line
    """
    words = f"{name} {text[:4_096]}".lower()
    for class_, signs in (("oom", _OOM), ("nccl", _NCCL), ("cuda", _CUDA)):
        if any(sign in words for sign in signs):
            return class_
    return "user_code" if name.rpartition(".")[2] in USER_CODE else "unknown"
