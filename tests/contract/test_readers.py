"""What every reader of `nodewarden parse` promises, over all kinds, for any bytes.

Nothing raises; every object is JSON with "file" and "type"; what was rejected says why; and what
follows the damage is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.kinds import KINDS

DATA = Path(__file__).parents[1] / "data"
SEED = 20260302
SEED_BYTES_MAX = 30_000

Flat = dict[str, Any]


@dataclass(frozen=True)
class Good:
    """A line that is always read, and how to know it among the objects."""

    line: bytes
    is_it: Callable[[Flat], bool]


GOOD: dict[str, Good] = {
    "kernel": Good(
        b"2026-02-25T12:00:00,000000+00:00 NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=a, gone",
        lambda one: (one["type"], one.get("code"), one.get("pci")) == ("xid", 79, "0000:c3:00"),
    ),
    "exporter": Good(
        b'DCGM_FI_DEV_GPU_TEMP{gpu="7",UUID="GPU-good",Hostname="n1"} 61',
        lambda one: one.get("entity") == "GPU-good" and one.get("value") == 61.0,
    ),
    "nic": Good(
        b"link mlx5_9/1 np_cnp_sent 61 ",
        lambda one: one.get("entity") == "mlx5_9/1" and one.get("value") == 61.0,
    ),
    "slurm": Good(
        b"NodeName=good State=IDLE+DRAIN",
        lambda one: (one["type"], one.get("name")) == ("node", "good"),
    ),
    "training": Good(
        b"[rank61]: ValueError: good",
        lambda one: one["type"] == "failure" and "ValueError" in one["text"],
    ),
    "stacks": Good(
        b'Thread 61 (idle): "Good"\n    wait (good.py:1)', lambda one: one.get("name") == "Good"
    ),
    "collectives": Good(
        b'{"header": {"id": "0x61", "rank": 61, "n_ranks": 64}, "metadata": {"dump_timestamp_us":'
        b' 1748030377748202, "hostname": "good"}, "coll_perf": {"coll": "AllReduce", "coll_sn": 1,'
        b' "coll_msg_size_bytes": 1024, "coll_exec_time_us": 61}}',
        lambda one: one["type"] == "collective_time" and one.get("rank") == 61,
    ),
}

# Where the kind's samples are, and the beginning of a file that says which form it is.
SAMPLES = {
    "kernel": "kernel/*.log", "exporter": "exporter/*.prom", "nic": "nic/*.txt",
    "slurm": "scheduler/*", "training": "trainlog/*",
}  # fmt: skip
HEADS = {"exporter": b"# a scrape\n", "nic": b"# ethtool -S eth0\n"}


def seeds(kind: str) -> list[bytes]:
    pattern = SAMPLES.get(kind, f"{kind}/*")
    found = [path.read_bytes()[:SEED_BYTES_MAX] for path in sorted(DATA.glob(pattern))]
    return found or [b"\n".join([GOOD[kind].line.replace(b"61", b"7")] * 5)]


def read(kind: str, data: bytes, piece: int = 1 << 20) -> list[Flat]:
    """All objects, checked; the bytes come in pieces."""
    pieces = (data[at : at + piece] for at in range(0, len(data), piece))
    found = list(KINDS[kind]("the file", pieces))
    for one in found:
        assert "the file" == one["file"]
        assert isinstance(one["type"], str)
        assert one["type"]
        assert msgspec.json.decode(msgspec.json.encode(one)) is not None
        if one["type"] == "rejected":
            assert one["reason"]
            assert isinstance(one["text"], str)
    return found


# -- damage

Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def hole(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.randrange(1, 200) :]


def doubled(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    return b"\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]])


def swapped(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


def glued(data: bytes, chance: random.Random) -> bytes:
    breaks = [at for at, byte in enumerate(data) if byte == 10]
    at = chance.choice(breaks) if breaks else 0
    return data[:at] + data[at + 1 :]


def as_utf_16(data: bytes, _: random.Random) -> bytes:
    return data.decode("utf-8", "replace").encode("utf-16")


def as_latin_1(data: bytes, _: random.Random) -> bytes:
    return data.decode("utf-8", "replace").replace("a", "\xe4").encode("latin-1", "replace")


def with_nuls(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + b"\0" * chance.randrange(1, 20) + data[at:]


def with_wrong_utf_8(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + b"\xc3\x28\xf0\x9f\xed\xa0\x80\xff" + data[at:]


def with_a_long_line(data: bytes, chance: random.Random) -> bytes:
    at = data.rfind(b"\n", 0, chance.randrange(len(data) + 1)) + 1
    return data[:at] + chance.choice([b"a", b"{", b"[", b" ", b'"', b"1,"]) * 500_000 + data[at:]


def with_other_bytes(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(50) + data[at + 50 :]


DAMAGES: tuple[Damage, ...] = (
    cut, hole, doubled, swapped, glued, as_utf_16, as_latin_1, with_nuls, with_wrong_utf_8,
    with_other_bytes,
)  # fmt: skip


def damaged(kind: str) -> Iterator[bytes]:
    """Each sample in each way once, each time at another place."""
    chance = random.Random(SEED)
    for seed in seeds(kind):
        for damage in DAMAGES:
            yield damage(seed, chance)
    yield from (with_a_long_line(seed, chance) for seed in seeds(kind)[:3])


# -- the promises


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_samples_are_read_alike_in_pieces_of_any_size(kind: str) -> None:
    for seed in seeds(kind):
        assert read(kind, seed) == read(kind, seed, 61)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damage_raises_nothing_and_what_follows_it_is_read(kind: str) -> None:
    print("seed", SEED)
    good, head = GOOD[kind], HEADS.get(kind, b"")
    for data in damaged(kind):
        read(kind, data)
        found = read(kind, head + data + b"\n" + good.line + b"\n")
        assert any(good.is_it(one) for one in found), data[-400:]


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
@settings(
    max_examples=30, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_several_damages_at_once_raise_nothing(kind: str, data: st.DataObject) -> None:
    some = data.draw(st.sampled_from(seeds(kind)))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    for damage in data.draw(st.lists(st.sampled_from(DAMAGES), max_size=4)):
        some = damage(some, chance)
    read(kind, some)


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(some=st.binary(max_size=400))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_any_bytes_raise_nothing(kind: str, some: bytes) -> None:
    read(kind, some)


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(some=st.text(alphabet='{}[]":,=|. \n\t-:/0123456789NodeStateJobId', max_size=200))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_any_text_of_signs_raises_nothing(kind: str, some: str) -> None:
    read(kind, some.encode())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nothing_gives_nothing(kind: str) -> None:
    assert [] == read(kind, b"")
    assert [] == read(kind, b"\n\n  \n")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_good_line_is_read_alone(kind: str) -> None:
    assert any(GOOD[kind].is_it(one) for one in read(kind, GOOD[kind].line))
