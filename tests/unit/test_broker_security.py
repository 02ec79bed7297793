"""Secrets stay hidden, settings that contradict each other stop the start, TLS is verified."""

from __future__ import annotations

import logging
import os
import ssl
import subprocess
from pathlib import Path

import pytest

from nodewarden.settings_file import load, show
from telemetry.broker_security import client_options, ssl_context
from telemetry.errors import SettingsError
from telemetry.settings import KafkaSettings, SecuritySettings

SECRET = "correct-horse-battery"
LOGIN = 'protocol = "sasl_plaintext"\nusername = "agent"\n'


def written(tmp_path: Path, text: str, mode: int = 0o640) -> Path:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f"[kafka.security]\n{text}\n")
    file.chmod(mode)
    return file


def refusal(tmp_path: Path, text: str, mode: int = 0o640) -> str:
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, text, mode), {})
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{tmp_path}/", "")


def options(**security: str) -> dict[str, object]:
    return client_options(KafkaSettings(security=SecuritySettings(**security)))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x",
         "-keyout", str(file.with_name("key.pem")), "-out", str(file)],
        check=True, capture_output=True,
    )  # fmt: skip
    return file


def test_the_password_is_not_shown_and_the_rest_is(tmp_path: Path) -> None:
    effective = load(written(tmp_path, f'{LOGIN}password = "{SECRET}"'), {})

    text = show(effective)
    assert SECRET not in text
    assert f"# password is set and not shown  # {tmp_path}/nodewarden.toml" in text
    assert 'username = "agent"' in text
    assert SECRET not in repr(effective)
    assert SECRET == effective.configuration.kafka.security.password


def test_a_password_from_the_environment_is_taken_as_it_is(tmp_path: Path) -> None:
    text = '{"[1'
    environ = {"NODEWARDEN_KAFKA__SECURITY__PASSWORD": text}
    effective = load(written(tmp_path, LOGIN, 0o644), environ)
    assert text == effective.configuration.kafka.security.password
    assert "not shown  # NODEWARDEN_KAFKA__SECURITY__PASSWORD" in show(effective)


def test_a_password_in_a_file_for_everybody_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, f'{LOGIN}password = "{SECRET}"', 0o644)
    assert "nodewarden.toml: kafka.security.password: everybody can read that file; chmod" in said


def test_a_password_file_for_everybody_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password = tmp_path / "password"
    password.write_text(f"{SECRET}\n")
    password.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        load(written(tmp_path, f'{LOGIN}password_file = "{password}"'), {})
        password.chmod(0o640)
        load(written(tmp_path, f'{LOGIN}password_file = "{password}"'), {})
    assert caplog.messages == [
        f"kafka.security.password_file: everybody can read {password}; chmod o-r it"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"password = {SECRET!r}", "kafka.security.password: is set, and kafka.security.protocol = "
         "'plaintext' does not use it"),
        ('ca_file = "/ca.pem"', "kafka.security.ca_file: is set, and"),
        ('protocol = "sasl_plaintext"\nca_file = "/ca.pem"', "kafka.security.ca_file: is set, and"),
        ('protocol = "ssl"\nusername = "u"', "kafka.security.username: is set, and"),
        ('protocol = "ssl"\nkey_file = "/k"', "kafka.security.key_file: certificate_file is"),
        ('protocol = "sasl_ssl"', "kafka.security.username: is not set, and sasl_ssl needs it"),
        (LOGIN, "kafka.security.password_file: set one of password_file and password"),
        (f'{LOGIN}password = "{SECRET}"\npassword_file = "/p"', "set one of password_file and"),
        (LOGIN.replace("agent", "a=b"), "kafka.security.username: holds a comma, '='"),
        (f'{LOGIN}password = ["{SECRET}"]', "kafka.security.password: expected text in quotes"),
        ('protocol = "tls"', "kafka.security.protocol: 'tls' is none of plaintext, ssl, "),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line_without_the_secret(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min_insync_replicas = 2", "kafka.min_insync_replicas: 2, with replication 1"),
        (
            "retention_days = { telemetri = 3.0 }",
            "kafka.retention_days: no topic 'telemetri'; known",
        ),
        ('compression = "zstd"', "kafka.compression: "),
    ],
)
def test_topics_that_cannot_be_made_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "n.toml"
    file.write_text(f"[kafka]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert said in str(caught.value)


def test_without_security_there_are_no_options() -> None:
    assert {} == client_options(KafkaSettings())


def test_a_login_hides_the_password_from_whoever_logs_the_options() -> None:
    found = options(protocol="sasl_plaintext", username="agent", password=SECRET)
    assert found["sasl_plain_password"] == SECRET
    assert SECRET not in repr(found)
    assert ("SASL_PLAINTEXT", "SCRAM-SHA-512") == (
        found["security_protocol"], found["sasl_mechanism"],
    )  # fmt: skip


def test_tls_is_verified_and_modern_and_made_once(certificate: Path) -> None:
    security = SecuritySettings(protocol="ssl", ca_file=str(certificate))
    context = ssl_context(security)
    assert context.check_hostname
    assert ssl.CERT_REQUIRED == context.verify_mode
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context is ssl_context(security)
    os.utime(certificate, ns=(1, 1))  # renewed
    assert context is not ssl_context(security)


def test_a_file_that_cannot_be_used_is_one_line(certificate: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    missing = str(tmp_path / "missing")
    pem, key = str(certificate), str(certificate.with_name("key.pem"))
    for said, wrong in (
        (f"ca_file: {missing}: No such file", {"ca_file": missing}),
        (f"ca_file: {empty}: no certificates", {"ca_file": str(empty)}),
        (f"certificate_file: {pem}: no certificate with its", {"certificate_file": pem}),
        (f"key_file: {missing}: No such file", {"certificate_file": pem, "key_file": missing}),
    ):
        with pytest.raises(SettingsError, match=f"kafka.security.{said}"):
            options(protocol="ssl", **wrong)
    assert options(protocol="ssl", ca_file=pem, certificate_file=pem, key_file=key)


@pytest.mark.parametrize("text", ["", "\n", "a\nb\n", "x" * 5_000])
def test_a_password_file_holds_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "password"
    file.write_text(text)
    with pytest.raises(SettingsError, match="expected one line of text, the password"):
        options(protocol="sasl_plaintext", username="u", password_file=str(file))
