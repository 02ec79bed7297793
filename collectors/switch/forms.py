"""Wordings of datacentre switches: a row each. Adding one is adding a row and a sample.

Only what an administrator did not ask for is told: a port that was shut down by command, or is down
because its channel is, matches no row. Vlans, channels and loopbacks are no ports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from telemetry.records import Severity

_PORT = r"(?P<port>(?:[A-Za-z]{0,16}(?:Ethernet|GigE)|Eth?|swp)\d[\d/]{0,11}(?:s\d{1,2})?)"
_NOTE = r"(?: \([^)\n]{0,200}\))?"  # Arista and Cisco put the port's description there


@dataclass(frozen=True, slots=True)
class SwitchForm:
    """One wording.

    marker   stands in every such line
    pattern  searched in the line; groups: port; part (of the switch itself); over (the condition
             ended, or the link came up)
    class_   of the event; where `over` is found it is `ended`, and the severity info
    """

    name: str
    marker: bytes
    pattern: re.Pattern[str]
    class_: str
    example: str
    source: str
    severity: Severity = "warning"
    ended: str = ""


def _row(
    name: str, marker: str, pattern: str, class_: str, example: str, source: str, ended: str = ""
) -> SwitchForm:
    return SwitchForm(
        name, marker.encode(), re.compile(pattern), class_, example, source, ended=ended
    )


FORMS: tuple[SwitchForm, ...] = (
    _row("Arista EOS, link", "LINEPROTO-",
         rf"%LINEPROTO-\d-UPDOWN: Line protocol on Interface {_PORT}{_NOTE}, changed state to"
         r" (?:(?P<over>up)|down)\b", "link_down",
         "<165>Feb  6 09:42:36 veos01 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface"
         " Ethernet28, changed state to down", "napalm-automation/napalm-logs", "link_up"),
    _row("Arista EOS, port taken out", "ERRDISABLE",
         rf"%ETH-\d-ERRDISABLE: (?P<why>[\w-]{{1,40}}) error detected on {_PORT}", "errdisabled",
         "Jun 28 15:06:19 le-3 Ebra: %ETH-4-ERRDISABLE: link-flap error detected on Ethernet5.",
         "public lab notes; the reason link-flap of Arista's support pages"),
    _row("Cisco NX-OS, link down", "IF_DOWN_LINK_FAILURE",
         rf"%ETHPORT-\d-IF_DOWN_LINK_FAILURE: Interface {_PORT}{_NOTE} is down", "link_down",
         "2015 May 18 12:43:15 switch2 %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/4 is"
         " down (Link failure)", "a NANOG tutorial's tests; Cisco's Nexus 9000 documents"),
    _row("Cisco NX-OS, link up", "-IF_UP", rf"%ETHPORT-\d-IF_UP: Interface {_PORT}{_NOTE} is"
         r" (?P<over>up)\b", "link_down",
         "2015 May 18 12:44:02 switch2 %ETHPORT-5-IF_UP: Interface Ethernet1/4 is up in Layer3",
         "Cisco's Nexus 9000 documents", "link_up"),
    _row("Cisco NX-OS, port taken out", "IF_DOWN_ERROR_DISABLED",
         rf"%ETHPORT-\d-IF_DOWN_ERROR_DISABLED: Interface {_PORT}{_NOTE} is down \(Error disabled\."
         r" Reason: ?(?P<why>[^)\n]{1,80})", "errdisabled",
         "2022 Dec 25 19:35:57 boram %ETHPORT-5-IF_DOWN_ERROR_DISABLED: Interface Ethernet1/1 is"
         " down (Error disabled. Reason:UDLD Tx-Rx Loop)", "a public script on such ports"),
    _row("Cisco NX-OS, optics", "ETHPORT-3-IF_",
         rf"%ETHPORT-\d-IF_(?:XCVR|SFP)_ALARM: Interface {_PORT}{_NOTE}, (?P<why>[\w ]{{1,60}}?)"
         r" Alarm(?P<over> cleared)?", "optics",
         "2026 Jun 1 13:57:25 sw %ETHPORT-3-IF_XCVR_ALARM: Interface Ethernet4/3, Low Rx Power"
         " Alarm", "an EEM script of Cisco's; a public log analyser's tests", "optics_normal"),
    _row("Cisco NX-OS, power supply", "PS_FAIL",
         r"%PLATFORM-\d-PS_FAIL: (?P<part>Power supply \d{1,2}) failed", "psu",
         "2026 Jun 1 13:57:25 sw %PLATFORM-2-PS_FAIL: Power supply 2 failed or shutdown (Serial"
         " number ABC12345)", "public test logs"),
    _row("Cisco, fan", "FAN_", r"%(?:ENVMON|HARDWARE|PLATFORM)-\d-FAN_(?:FAILED|ERROR|FAIL): "
         r"(?P<part>[^\n]{1,60})", "fan",
         "Feb 27 06:08:59 sw %HARDWARE-2-FAN_ERROR: Fan Failure", "Graylog's syslog tests"),
    _row("SONiC, link", "oper state set from",
         rf"Port {_PORT} oper state set from (?:up to (?:down)|\w{{1,16}} to (?P<over>up))\b",
         "link_down",
         "Apr 21 17:34:55.734896 leaf1 NOTICE swss#orchagent: :- updatePortOperStatus: Port"
         " Ethernet12 oper state set from up to down", "sonic-net/sonic-mgmt tests", "link_up"),
    _row("SONiC, fan", "an fault warning",
         r"(?:Fan|FAN) fault warning(?P<over> cleared)?: (?P<part>[\w .-]{1,60}?) is (?:broken|back"
         r"|not working)", "fan",
         "Apr 21 17:34:55.734896 leaf1 WARNING pmon#thermalctld: Fan fault warning: FanDrawer 0 fan"
         " 1 is broken", "sonic-net/sonic-platform-daemons tests", "fan_normal"),
    _row("SONiC, power supply", " absence warning",
         r"(?:PSU|Power) absence warning(?P<over> cleared)?: (?P<part>[\w .-]{1,60}?) (?:is|power)"
         r" ", "psu",
         "Apr 21 17:34:55.734896 leaf1 WARNING pmon#psud: Power absence warning: PSU 1 is out of"
         " power.", "sonic-net/SONiC design of psud", "psu_normal"),
    _row("Cumulus Linux, link", "setting kernel carrier",
         rf"nic_set_carrier: {_PORT}: setting kernel carrier: (?:(?P<over>up)|down)\b", "link_down",
         "2017-03-08T06:26:43.569681+00:00 leaf01 switchd[5692]: nic.c:213 nic_set_carrier: swp17:"
         " setting kernel carrier: down", "NVIDIA's Cumulus Linux documents", "link_up"),
    _row("Cumulus Linux, power supply", "smond",
         r"smond : : (?P<part>PSU\d{1,2}\w{0,12})\([^)\n]{0,60}\): state changed from \w{1,12} to"
         r" (?:(?P<over>OK)|BAD|LOW|CRITICAL|ABSENT)\b", "psu",
         "2017-03-08T06:26:43.569681+00:00 leaf01 /usr/sbin/smond : : PSU2Fan1(PSU2 Fan): state"
         " changed from OK to BAD", "NVIDIA's Cumulus Linux documents", "psu_normal"),
    _row("Cumulus Linux, fan", "smond",
         r"smond : : (?P<part>Fan\d{1,2})\([^)\n]{0,60}\): state changed from \w{1,12} to"
         r" (?:(?P<over>OK)|BAD|LOW|CRITICAL|ABSENT)\b", "fan",
         "2017-03-08T06:26:43.569681+00:00 leaf01 /usr/sbin/smond : : Fan3(Fan Tray 2, Fan 1):"
         " state changed from OK to BAD", "NVIDIA's Cumulus Linux documents", "fan_normal"),
)  # fmt: skip

_SHORT = re.compile(r"Eth?(?=\d)")


def port_name(name: str) -> str:
    """A port as the switch's own lines name it: "Et12" and "Eth1/4" are "Ethernet..."."""
    return _SHORT.sub("Ethernet", name.strip())
