"""Settings: environment over file over defaults; what nobody knows or nobody can mean stops."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodewarden.settings_file import Effective, leaves, load, show, variable_of
from telemetry.errors import SettingsError
from telemetry.settings import (
    Configuration,
    EngineSettings,
    TickSettings,
    ZscoreSettings,
)

TOP_KEYS = ", ".join(Configuration.__struct_fields__)


def loaded(tmp_path: Path, text: str, **environ: str) -> Configuration:
    file = tmp_path / "nodewarden.toml"
    file.write_text(text)
    return load(file, environ).configuration


def refusal(tmp_path: Path, text: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text, **environ)
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(f"{tmp_path}/", "")


def test_without_anything_the_defaults_hold() -> None:
    assert load(None, {}) == Effective(Configuration(), {})


def test_the_file_sets_values(tmp_path: Path) -> None:
    text = """
        timezone = "UTC"
        [engine]
        cluster = "alpha"
        [engine.zscore]
        window_s = 300
        pooled = true
        [engine.ticks.interval_s]
        gpu = 15
    """
    engine = loaded(tmp_path, text).engine
    assert engine.cluster == "alpha"
    assert engine.zscore == ZscoreSettings(window_s=300.0, pooled=True)
    assert engine.ticks.interval_s == {"gpu": 15.0}


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    engine = loaded(
        tmp_path,
        '[engine]\ncluster = "file"\n[engine.zscore]\nwindow_s = 300\nsigmas = 3',
        NODEWARDEN_ENGINE__ZSCORE__WINDOW_S="120",
        NODEWARDEN_ENGINE__CLUSTER="123",
    ).engine
    assert engine.zscore == ZscoreSettings(window_s=120.0, sigmas=3.0)
    assert engine.cluster == "123"


def test_every_key_is_also_a_variable() -> None:
    for path, _ in leaves(Configuration):
        found = load(None, {variable_of(path): as_text(path)})
        assert found.configuration == Configuration(), path
        assert found.origins == {".".join(path): variable_of(path)}


def as_text(path: tuple[str, ...]) -> str:
    value: object = Configuration()
    for part in path:
        value = getattr(value, part)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def test_an_interval_of_one_source_joins_those_of_the_file(tmp_path: Path) -> None:
    ticks = loaded(
        tmp_path,
        "[engine.ticks.interval_s]\ngpu = 15\nnic = 30",
        NODEWARDEN_ENGINE__TICKS__INTERVAL_S__NIC="60",
    ).engine.ticks
    assert ticks == TickSettings(interval_s={"gpu": 15.0, "nic": 60.0})


def test_lists_and_tables_in_variables() -> None:
    environ = {
        "NODEWARDEN_SHARDS": "main, pod1 ,history",
        "NODEWARDEN_HISTORY_SHARDS": "[]",
        "NODEWARDEN_ENGINE__TICKS__INTERVAL_S": "{ gpu = 15, nic = 60.0 }",
    }
    configuration = load(None, environ).configuration
    assert configuration.shards == ("main", "pod1", "history")
    assert configuration.engine.ticks.interval_s == {"gpu": 15.0, "nic": 60.0}
    brackets = {"NODEWARDEN_SHARDS": '["main", "b,c"]', "NODEWARDEN_HISTORY_SHARDS": "b,c"}
    with pytest.raises(SettingsError, match="NODEWARDEN_HISTORY_SHARDS: history_shards: 'b'"):
        load(None, brackets)
    brackets["NODEWARDEN_HISTORY_SHARDS"] = '["b,c"]'
    bracketed = load(None, brackets).configuration
    assert bracketed.shards == ("main", "b,c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine.zscore]\nwindw_s = 1",
         "nodewarden.toml: engine.zscore.windw_s: unknown key; did you mean window_s?"),
        ("[enginee]\n", "nodewarden.toml: enginee: unknown key; did you mean engine?"),
        ("window_s = 1",
         "nodewarden.toml: window_s: unknown key; did you mean engine.zscore.window_s?"),
        ("colour = 1",
         f"nodewarden.toml: colour: unknown key; known: {TOP_KEYS}"),
        ('"a\\u001bb" = 1',
         "nodewarden.toml: 'a\\x1bb': unknown key; "
         f"known: {TOP_KEYS}"),
        ("engine = 3", "nodewarden.toml: engine: expected a table [engine]"),
        ("[engine.zscore]\nwindow_s = 'long'",
         "nodewarden.toml: engine.zscore.window_s: expected float instead of 'long'"),
        ("[engine.zscore]\nwindow_s = -3",
         "nodewarden.toml: engine.zscore.window_s: expected float > 0.0 instead of -3"),
        ("[engine.zscore]\nwindow_s = inf",
         "nodewarden.toml: engine.zscore.window_s: expected a finite number instead of inf"),
        ("[engine.zscore]\nwindow_s = nan",
         "nodewarden.toml: engine.zscore.window_s: expected float > 0.0 instead of nan"),
        ("[engine.zscore]\ncoverage = 90",
         "nodewarden.toml: engine.zscore.coverage: expected float <= 1.0 instead of 90"),
        ("[engine.zscore]\ngroup_min = 6.5",
         "nodewarden.toml: engine.zscore.group_min: expected int instead of 6.5"),
        ("[engine.zscore]\nenabled = 'yes'",
         "nodewarden.toml: engine.zscore.enabled: expected bool instead of 'yes'"),
        ("[engine.ticks.interval_s]\ngpu = 0",
         "nodewarden.toml: engine.ticks.interval_s: expected float > 0.0 instead of {'gpu': 0}"),
        ("[engine.ticks.interval_s]\ngpu = inf", "nodewarden.toml: engine.ticks.interval_s: "
         "expected a finite number instead of {'gpu': inf}"),
        ("shards = ['a', 'a']",
         "nodewarden.toml: shards: names must differ and not be empty: ['a', 'a']"),
        ("shards = ['a']", "settings: engine.shard: 'main' is not among shards ['a']"),
        ("shards = ['main']",
         "settings: history_shards: 'history' is not among shards ['main']"),
        ("history_shards = ['old']",
         "nodewarden.toml: history_shards: 'old' is not among shards ['main', 'history']"),
        ("[act]\nexecutor = 'slrum'",
         "nodewarden.toml: act.executor: 'slrum' is none of "
         '"", slurm, mpirun, webhook, command'),
        ("[act.rails.mode]\nisolate = 'ask'",
         "nodewarden.toml: act.rails.mode: 'ask' is none of observe, approve, auto"),
        ("[act.recovery]\nmodes = ['requeu']", "nodewarden.toml: act.recovery.modes: "
         "'requeu' is none of partial, in_place, replacement, requeue"),
        ("[act.rails]\nmaintenance = ['tonight']", "nodewarden.toml: act.rails.maintenance: "
         "expected SINCE/UNTIL NODES, times in ISO 8601 with a zone instead of ['tonight']"),
        ("timezone = 'Mars/Olympus'",
         "nodewarden.toml: timezone: 'Mars/Olympus' is no time zone"),
        ("timezone = '../../etc/passwd'",
         "nodewarden.toml: timezone: '../../etc/passwd' is no time zone"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line_with_file_and_key(
    tmp_path: Path, text: str, said: str
) -> None:
    assert refusal(tmp_path, text) == said


@pytest.mark.parametrize("text", ["a = ", "= 3", "[engine\n", "a = " + "[" * 5_000])
def test_what_is_no_toml_is_one_line_with_the_file(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text).startswith("nodewarden.toml: no TOML: ")


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("NODEWARDEN_ENGINE__ZSCORE__WINDW_S", "1",
         "NODEWARDEN_ENGINE__ZSCORE__WINDW_S: unknown key; "
         "did you mean NODEWARDEN_ENGINE__ZSCORE__WINDOW_S?"),
        ("NODEWARDEN_QQQQQ", "1", "NODEWARDEN_QQQQQ: unknown key; see `nodewarden config show`"),
        ("NODEWARDEN_ENGINE__ZSCORE__WINDOW_S", "long",
         "NODEWARDEN_ENGINE__ZSCORE__WINDOW_S: expected float instead of 'long'"),
        ("NODEWARDEN_ENGINE__ZSCORE__WINDOW_S", "inf",
         "NODEWARDEN_ENGINE__ZSCORE__WINDOW_S: expected a finite number instead of 'inf'"),
        ("NODEWARDEN_ENGINE__ZSCORE__WINDOW_S", "",
         "NODEWARDEN_ENGINE__ZSCORE__WINDOW_S: expected float instead of ''"),
        ("NODEWARDEN_ENGINE__TICKS__INTERVAL_S", "{ gpu = ",
         "NODEWARDEN_ENGINE__TICKS__INTERVAL_S: no TOML: Invalid value (at end of document)"),
        ("NODEWARDEN_ENGINE__TICKS__INTERVAL_S__GPU", "-1",
         "NODEWARDEN_ENGINE__TICKS__INTERVAL_S__GPU: expected float > 0.0 "
         "instead of {'gpu': '-1'}"),
        ("NODEWARDEN_ENGINE__SHARD", "pod9",
         "NODEWARDEN_ENGINE__SHARD: engine.shard: 'pod9' is not among shards "
         "['main', 'history']"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named(variable: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, {variable: text})
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "variable",
    ["NODEWARDEN_SERVICE_HOST", "NODEWARDEN_SERVICE_PORT_HTTP", "NODEWARDEN_PORT",
     "NODEWARDEN_PORT_8080_TCP_ADDR", "NODEWARDEN_KAFKA_SERVICE_HOST", "NODEWARDEN_CONFIG",
     "NODEWARDEN_TRACE", "PATH"],
)  # fmt: skip
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert load(None, {variable: "tcp://10.0.0.1:8080"}).configuration == Configuration()


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory; name a settings file"):
        load(tmp_path / "missing.toml", {})
    with pytest.raises(SettingsError, match="Is a directory"):
        load(tmp_path, {})
    (tmp_path / "binary.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(SettingsError, match="no UTF-8 text at byte 5"):
        load(tmp_path / "binary.toml", {})
    (tmp_path / "big.toml").write_bytes(b"#" * 1_100_000)
    with pytest.raises(SettingsError, match="over 1 MB"):
        load(tmp_path / "big.toml", {})


@given(st.binary(max_size=200))
def test_no_file_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(data)
    with contextlib.suppress(SettingsError):
        load(file, {})


positive = st.floats(1e-6, 1e12)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None)
@given(
    cluster=texts,
    interval=st.dictionaries(texts, positive, max_size=3),
    window=positive,
    pooled=st.booleans(),
)
def test_what_is_shown_loads_as_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: str,
    interval: dict[str, float],
    window: float,
    pooled: bool,
) -> None:
    wanted = Configuration(engine=EngineSettings(
        cluster=cluster, ticks=TickSettings(interval_s=interval),
        zscore=ZscoreSettings(window_s=window, pooled=pooled),
    ))  # fmt: skip
    file = tmp_path_factory.getbasetemp() / "shown.toml"
    file.write_text(show(Effective(wanted, {})))
    assert load(file, {}).configuration == wanted


def test_all_values_are_shown_and_say_whence(tmp_path: Path) -> None:
    file = tmp_path / "n.toml"
    file.write_text("[engine.zscore]\nsigmas = 3")
    text = show(load(file, {"NODEWARDEN_ENGINE__ZSCORE__WINDOW_S": "120"}))
    assert f"sigmas = 3.0  # {file}" in text
    assert "window_s = 120.0  # NODEWARDEN_ENGINE__ZSCORE__WINDOW_S" in text
    loaded = load(file, {"NODEWARDEN_ENGINE__ZSCORE__WINDOW_S": "120"})
    assert tomllib.loads(text) == json.loads(msgspec.json.encode(loaded.configuration))


def test_what_a_job_s_processes_find_in_their_environment_is_no_key() -> None:
    environ = {
        "NODEWARDEN_LAUNCH_DIR": "/shared/jobs", "NODEWARDEN_JOB": "7", "NODEWARDEN_NODES": "8",
        "NODEWARDEN_CODE_VERSION": "v1", "NODEWARDEN_STEP_SOCKET": "/run/x",
    }  # fmt: skip
    assert load(None, environ).configuration == Configuration()
