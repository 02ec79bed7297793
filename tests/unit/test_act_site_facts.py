"""The site in the log: what changed makes the same site again, however much it is."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actions.ledger import Ledger
from actions.ledger_log import decode, encode
from actions.rails import decide
from actions.site import NAMES_MAX, Site, SiteBook, SiteView, canonical, changes
from telemetry.actions import Decision, Measured, SiteFacts, Where, Window
from tests.acting import SETTINGS, incident
from tests.acting import Site as Place

NODES = st.sampled_from([f"n{number}" for number in range(6)])
TIMES = st.sampled_from([1.0, 2.5, 1_700_000_000.123456])
WORDS = st.sampled_from(["", "a", "b"])
SITES = st.builds(
    lambda **fields: canonical(Site(**fields)),
    places=st.dictionaries(NODES, st.builds(Where, WORDS, WORDS, WORDS, WORDS)),
    drained_by=st.dictionaries(NODES, WORDS), protected=st.lists(NODES),
    windows=st.lists(st.builds(Window, WORDS, TIMES, TIMES, st.lists(NODES))),
    booted_at=st.dictionaries(NODES, TIMES), nodes=st.none() | st.integers(0, 9),
    blind_nodes=st.none() | st.integers(0, 9), telemetry_at=st.none() | TIMES,
    measured_at=st.none() | TIMES, listing_at=st.none() | TIMES,
)  # fmt: skip


def read_back(*batches: list[SiteFacts]) -> Site:
    """What they make, over the wire."""
    book = SiteBook()
    for facts in batches:
        for one in facts:
            said = decode(encode(one))
            assert isinstance(said, SiteFacts)
            book.take(said)
    return book.site


@given(st.lists(SITES, min_size=1, max_size=5))
def test_what_changed_makes_the_same_site_again(sites: list[Site]) -> None:
    known, said = Site(), []
    for site in sites:
        said.append(changes(known, site, 1.0))
        assert read_back(*said) == site
        assert bool(said[-1]) == (known != site)
        known = site


def test_the_log_has_all_of_the_site() -> None:
    """A new field has to be in `SiteFacts` and in the sites of these tests."""
    assert set(Site.__struct_fields__) - {"sizes"} == {
        "places", "drained_by", "protected", "windows", "booted_at", *Measured.__struct_fields__,
    }  # fmt: skip


@given(SITES)
def test_what_is_canonical_stays_so(site: Site) -> None:
    assert canonical(site) == site


@given(SITES)
def test_a_snapshot_has_the_site(site: Site) -> None:
    ledger, restored = Ledger(), Ledger()
    for facts in changes(Site(), site, 1.0):
        ledger.take(facts)
    restored.restore(ledger.parts("s", 2.0))
    assert restored.site == ledger.site == site


def test_a_large_site_is_several_records_that_fit_and_a_small_change_is_one() -> None:
    nodes = [f"node-{number:06d}.rack.example" for number in range(20_000)]
    places = {
        node: Where(f"r{at // 40}", f"l{at // 40}", "p", "7") for at, node in enumerate(nodes)
    }
    site = canonical(Site(
        places=places, drained_by=dict.fromkeys(nodes, "ops"), protected=nodes,
        windows=[Window("all", 0.0, 1.0), Window("many", 0.0, 1.0, nodes)],
        booted_at=dict.fromkeys(nodes, 1.5), nodes=20_000,
    ))  # fmt: skip
    facts = changes(Site(), site, 1.0)
    assert read_back(facts) == site
    assert max(len(encode(one)) for one in facts) < 500_000
    assert len(facts) > 5 * 20_000 // NAMES_MAX
    later = msgspec.structs.replace(site, telemetry_at=9.0, drained_by={})
    assert read_back(facts, changes(site, later, 1.0)) == later
    moved = canonical(msgspec.structs.replace(
        site, telemetry_at=9.0, sizes={}, places={**places, nodes[0]: Where("r9")}
    ))  # fmt: skip
    (one,) = changes(site, moved, 1.0)
    assert len(encode(one)) < 300
    assert read_back(facts, [one]) == moved


def test_a_round_sees_one_site_whatever_is_said_meanwhile() -> None:
    said = [Site(nodes=1)]
    view = SiteView(lambda: said[-1])
    view.look()
    said.append(Site(nodes=2))
    assert view.site.nodes == 1
    view.look()
    assert view.site.nodes == 2


def test_the_facts_stand_before_the_first_decision_that_rests_on_them_and_once() -> None:
    place = Place(SETTINGS, decide)
    place.facts = Site(nodes=9, blind_nodes=1, drained_by={"n1": "ops"})
    one = place.start()
    one.step(3)
    assert not place.of(SiteFacts)  # nothing was decided
    place.tell(incident("a"))
    one.step(2)
    place.tell(incident("b"))
    place.start().step(2)
    kinds = [type(record) for record in place.records()]
    assert kinds.count(SiteFacts) == 1
    assert kinds.index(SiteFacts) == kinds.index(Decision) - 1
    place.facts = Site(nodes=9, blind_nodes=2, drained_by={"n1": "ops"})
    place.tell(incident("c"))
    place.start().step(2)
    said = [record for record in place.records() if isinstance(record, SiteFacts)]
    assert len(said) == 2
    assert said[1].drained_by == {}
    assert said[1].measured is not None
    assert said[1].measured.blind_nodes == 2
