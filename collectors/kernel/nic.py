"""Network: Mellanox and other drivers, links, what the network stack says of them.

Ordinary bring-up ("Port: 1 Link INIT", "Link ACTIVE") matches no row.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collectors.kernel.events import Form, plain

_I = re.IGNORECASE
_ADDRESS = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_MLX5 = rf"mlx5_core(?:\d{{1,3}})? {_ADDRESS}"
_NETDEV = r"(?: (?P<nic>[a-z][\w.-]{0,15}))?(?: \(unregistered net_device\))?: "
_DRIVERS = (
    r"(?:mlx4_en|mlx5_core|bnxt_en|ice|i40e|ixgbe|igb|igc|e1000e|ena|efa|r8169|tg3|qede|hns3|be2net"
    r"|enic|irdma|cxgb4)"
)


def _row(
    name: str, marker: bytes, pattern: str, class_: str, example: str, **changes: object
) -> Form:
    base = Form(
        name=name, marker=marker, type="nic", class_=class_, make=plain,
        pattern=re.compile(pattern, _I), example=example,
        source="public issue threads of the driver",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


FORMS: tuple[Form, ...] = (
    _row("mlx5 port down", b"link down",
         rf"{_MLX5} (?P<nic>mlx5_\w{{1,12}}): Port: (?P<port>\d{{1,3}}) Link DOWN", "link_down",
         "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
    _row("link down", b"link down", rf"{_DRIVERS} {_ADDRESS}{_NETDEV}(?:NIC )?Link down",
         "link_down", "mlx5_core 0000:41:00.0 eth0: Link down"),
    _row("link down, other drivers", b"link is down",
         rf"{_DRIVERS}(?: {_ADDRESS})?{_NETDEV}(?:NIC )?Link is Down", "link_down",
         "bnxt_en 0000:3b:00.0 ens1f0: NIC Link is Down"),
    _row("mlx5 port module error", b"port module event[error]",
         rf"(?:{_MLX5}: )?(?:mlx5_port_module_event:\d{{1,6}}:\(pid (?P<pid>\d{{1,10}})\): )?"
         r"Port module event\[error\]: module \d{1,3}, ", "port_module",
         "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error,"
         " High Temperature"),
    _row("mlx5 cable", b"mlx5_",
         rf"{_MLX5}: .{{0,80}}?Port module event: module \d{{1,3}}, Cable unplugged", "unplugged",
         "mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged", severity="info"),
    _row("mlx5 health", b"mlx5_",
         rf"{_MLX5}: .{{0,80}}?(?:device's health compromised|health recovery failed|Fatal error "
         r"\d{1,6} detected|unrecoverable hardware error|firmware internal error|reporting fatal)",
         "health",
         "mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - reached"
         " miss count", severity="critical"),
    _row("mlx5 syndrome", b"mlx5_", rf"{_MLX5}: .{{0,80}}?\bsynd 0x(?!0+\b)[0-9a-f]{{1,4}}: ",
         "health", "mlx5_core 0000:41:00.0: print_health_info:458:(pid 0): synd 0x10: High"
         " temperature"),
    _row("mlx5 does not start", b"mlx5_", rf"mlx5_core: probe of {_ADDRESS} failed with error",
         "probe_failed", "mlx5_core: probe of 0000:03:00.0 failed with error -22"),
    _row("mlx5 command time-out", b"mlx5_",
         rf"{_MLX5}: .{{0,80}}?timeout\. Will cause a leak of a command resource",
         "command_timeout", "mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104)"
         " timeout. Will cause a leak of a command resource"),
    _row("mlx5 slot power", b"mlx5_",
         rf"{_MLX5}: .{{0,80}}?Detected insufficient power on the PCIe slot", "slot_power",
         "mlx5_core 0000:01:00.0: mlx5_pcie_event:326:(pid 165): Detected insufficient power on"
         " the PCIe slot (27W)."),
    _row("mlx5 bad completion", b"error cqe on", rf"{_MLX5}{_NETDEV}Error cqe on cqn", "error_cqe",
         "mlx5_core 0000:41:00.0 eth0: Error cqe on cqn 0x1a2, ci 0x3, qn 0x1b4, opcode 0xd"),
    _row("transmit time-out", b"tx timeout", rf"{_DRIVERS} {_ADDRESS}{_NETDEV}TX timeout",
         "tx_timeout", "mlx5_core 0000:41:00.0 eth0: TX timeout detected"),
    _row("transmit watchdog", b"netdev watchdog",
         r"NETDEV WATCHDOG: (?P<nic>[\w.-]{1,15}) \([\w-]{1,32}\): transmit queue \d{1,5} timed",
         "tx_timeout", "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out"),
    _row("NIC chip does not answer", b"rtl_",
         rf"r8169 {_ADDRESS}{_NETDEV}rtl_\w{{1,40}} == \d \(loop: \d{{1,6}}", "no_answer",
         "r8169 0000:0a:00.0 enp10s0: rtl_chipcmd_cond == 1 (loop: 100, delay: 100)."),
    _row("wrong hardware checksum", b"hw csum failure",
         r"(?:(?P<nic>[a-z][\w.-]{0,14})|\(NULL net_device\)): hw csum failure", "checksum",
         "eth0: hw csum failure"),
    _row("connection table full", b"nf_conntrack",
         r"nf_conntrack: table full, dropping packet", "conntrack_full",
         "nf_conntrack: nf_conntrack: table full, dropping packet"),
    _row("bond lost a link", b"link status definitely down",
         r"bond[\w.-]{0,12}: (?:\([^)]{1,32}\): )?(?:\(slave (?P<nic>[\w.-]{1,15})\): )?link status"
         r" definitely down", "link_down",
         "bond0: (slave ens1f0): link status definitely down, disabling slave"),
)  # fmt: skip
