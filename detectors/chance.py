"""How many of many ranks stand out so often by chance, where all of them vary."""

from __future__ import annotations


def expected_by_chance(count: int, steps: int, share: float, ranks: int) -> float:
    """An upper bound on how many of `ranks` are late in `count` of `steps` steps by chance.

    share    of all steps of all ranks that were late, 0 to 1
    returns  ranks * C(steps, count) * share ** count; only products, so that all machines agree
    """
    assert 0 <= count <= steps
    bound = float(ranks)
    for place in range(count):
        bound *= share * (steps - place) / (place + 1)
    return bound
