"""Where a capture's files are. Only names; nothing here is opened."""

from __future__ import annotations

from pathlib import Path

REMEDY = (
    "a capture holds metrics/*.om[.gz], kernel/<node>.log[.gz], training/<job>/*.log[.gz],"
    " switch/<name>.log[.gz], jobs.json"
)
WANDB = ("files/wandb-history.jsonl", "files/output.log")  # of a wandb run's directory
FOLDERS = ("metrics", "kernel", "training", "switch")
ABOUT = ("jobs.json", "capture.json", "truth.json")
METRIC_SUFFIXES = (".om", ".json")  # OpenMetrics, answers of Prometheus' API
TRAINING_SUFFIXES = (".log", ".out", ".jsonl")  # a wandb history is .jsonl
ALLOC_SUFFIXES = (".json", ".txt", ".yaml")


def is_capture(path: Path) -> bool:
    """Whether a directory looks like a capture."""
    return any((path / name).is_dir() for name in FOLDERS) or any(
        (path / name).is_file() for name in ("jobs.json", "capture.json", *WANDB)
    )


def capture_size(path: Path) -> int:
    """Bytes that reading it takes, as they lie on disk."""
    return sum(file.stat().st_size for file in data_files(path))


def data_files(path: Path) -> list[Path]:
    """All files with dated content."""
    return [
        *metric_files(path), *kernel_files(path), *switch_files(path), *training_files(path)
    ]  # fmt: skip


def metric_files(path: Path) -> list[Path]:
    """Dumps and answers of Prometheus, sorted by name.

    `path` may also be one such file, or a directory that holds them and no folder of a capture.
    """
    if path.is_file():
        return [] if path in training_files(path) else [path]
    if any((path / name).is_dir() for name in FOLDERS):
        return _named(path / "metrics", *METRIC_SUFFIXES)
    return [file for file in _named(path, *METRIC_SUFFIXES) if file.name not in ABOUT]


def alloc_files(path: Path) -> list[Path]:
    """What schedulers printed, `alloc/*`, sorted by name."""
    return _named(path / "alloc", *ALLOC_SUFFIXES)


def kernel_files(path: Path) -> list[Path]:
    """Kernel logs, sorted by name."""
    return _named(path / "kernel", ".log")


def switch_files(path: Path) -> list[Path]:
    """Syslog of switches, sorted by name."""
    return _named(path / "switch", ".log")


def boot_file(kernel_file: Path) -> Path:
    """Where a kernel log's boot time stands, for lines without a date."""
    return kernel_file.with_name(f"{stem(kernel_file)}.boot")


def training_files(path: Path) -> list[Path]:
    """Training logs, sorted by job and name; of a wandb run's directory its history and output.

    `path` may also be one exported history.
    """
    if path.is_file():
        return [path] if path.name.removesuffix(".gz").endswith(".jsonl") else []
    folder = path / "training"
    if not folder.is_dir():
        return [path / name for name in WANDB if (path / name).is_file()]
    jobs = sorted(job for job in folder.iterdir() if job.is_dir())
    return [file for job in jobs for file in _named(job, *TRAINING_SUFFIXES)]


def job_of(training_file: Path) -> str:
    """The job of a training log: its directory's name; of a wandb run the run's id."""
    folder = training_file.parent
    if folder.name == "files" and folder.parent.name.startswith(("run-", "offline-run-")):
        return folder.parent.name.rpartition("-")[2]
    return folder.name


def stem(file: Path) -> str:
    """The name without ".log" or ".log.gz", or another ending of logs."""
    name = file.name.removesuffix(".gz")
    for suffix in TRAINING_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _named(folder: Path, *suffixes: str) -> list[Path]:
    if not folder.is_dir():
        return []
    ends = (*suffixes, *(f"{suffix}.gz" for suffix in suffixes))
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name.endswith(ends))
