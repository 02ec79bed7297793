"""Every detector that runs, in a fixed order: adding one is adding a line."""

from __future__ import annotations

from detectors.attempts import Attempts
from detectors.base import Detector
from detectors.canary import Canary
from detectors.critical import Critical
from detectors.curves import Curves
from detectors.devices import Devices
from detectors.ecc import Ecc
from detectors.flap import Flap
from detectors.idle import Idle
from detectors.progress import Progress
from detectors.robust_peers import RobustPeers
from detectors.should_be_zero import ShouldBeZero
from detectors.silence import Silence
from detectors.states import States
from detectors.straggler import Straggler
from detectors.telemetry_quality import TelemetryQuality
from detectors.training import Training
from detectors.zscore import Zscore
from telemetry.settings import EngineSettings


def detectors(settings: EngineSettings) -> list[Detector]:
    """The enabled ones; the order is part of what makes a replay repeat itself."""
    rows: list[tuple[bool, Detector]] = [
        (settings.critical.enabled, Critical(settings)),
        (settings.flap.enabled, Flap(settings)),
        (settings.devices.enabled, Devices(settings)),
        (settings.ecc.enabled, Ecc(settings)),
        (settings.states.enabled, States(settings)),
        (settings.should_be_zero.enabled, ShouldBeZero(settings)),
        (settings.telemetry_quality.enabled, TelemetryQuality(settings)),
        (settings.zscore.enabled, Zscore(settings)),
        (settings.robust_peers.enabled, RobustPeers(settings)),
        (settings.straggler.enabled, Straggler(settings)),
        (settings.attempts.enabled, Attempts(settings)),
        (settings.progress.enabled, Progress(settings)),
        (settings.idle.enabled, Idle(settings)),
        (settings.training.enabled, Training(settings)),
        (settings.curves.enabled, Curves(settings)),
        (settings.silence.enabled, Silence(settings)),
        (settings.canary.enabled, Canary()),
    ]
    return [detector for enabled, detector in rows if enabled]
