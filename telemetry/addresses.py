"""HOST:PORT and URLs as the settings name them. Pure: nobody is asked whether they are there."""

from __future__ import annotations

from urllib.parse import urlsplit

PORT_MAX = 65_535


def host_port(address: str, *, port_min: int = 0) -> tuple[str, int] | None:
    """The host, of "[::1]:9120" without its brackets, and the port; None where it is no HOST:PORT.

    port_min  1 where somebody is called: 0 is any free port, which can only be served
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _usable(host) or not port.isascii() or not port.isdecimal() or set(host) & set("/@[]"):
        return None
    return (host, int(port)) if len(port) <= 5 and port_min <= int(port) <= PORT_MAX else None


def wrong_url(url: str, *, server_only: bool = False, unix: bool = False) -> str:
    """What is expected instead; "" where it is one. Does not repeat the URL, which may be a secret.

    server_only  a path behind the server would not be used
    unix         a socket's path may be named instead, unix:/PATH
    """
    if unix and url.startswith("unix:"):
        path = url.removeprefix("unix:")
        return "" if path.startswith("/") and path.isprintable() else "expected unix:/PATH"
    expected = "expected http://HOST:PORT" + ("" if server_only else "/PATH")
    expected += " or unix:/PATH" if unix else " or https"
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        return expected
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_one:
        return expected
    if not _usable(url) or not url.isascii():
        return expected
    if parts.username is not None:
        return "a name or a password in it is not used"
    if server_only and (parts.path.strip("/") or parts.query or parts.fragment):
        return f"{expected}; a path in it is not used"
    return ""


def _usable(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text
