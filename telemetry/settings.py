"""Every number the engine runs with, its unit in its name. They travel in the `Settings` record.

Nothing here reads a file or the environment: `nodewarden.settings_file` does, once, at the start.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0.0)]
NotNegative = Annotated[float, Meta(ge=0.0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=1)]
XidPair = Annotated[
    str, Meta(pattern=r"^\d{1,5}:\d{1,5}$", extra={"wanted": "two Xids, as 162:163"})
]

ActMode = Literal["observe", "approve", "auto"]
TokenLine = Annotated[
    str,
    Meta(
        pattern=r"^(viewer|operator|admin):[0-9a-f]{64}$",
        extra={  # somebody will write the token itself
            "secret": True,
            "wanted": "viewer, operator or admin, a colon, and the SHA-256 of the token in hex",
        },
    ),
]

# Never shown: not by `config show`, not in an error line, not in a representation.
Secret = Annotated[str, Meta(extra={"secret": True})]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the settings file; a key nobody knows stops the start."""


class TickSettings(Section, frozen=True, kw_only=True):
    """How samples become ticks (DESIGN: time)."""

    interval_s: dict[str, Positive] = {}  # per source; sources not named here use the default
    interval_default_s: Positive = 10.0
    lateness_intervals: Positive = 2.0
    settle_s: NotNegative = 2.0  # what is on its way when a tick ends still counts in it
    settle_intervals: NotNegative = 0.1  # but not longer than this
    few_share: Share = 0.05  # of the expected pairs are not waited for
    expected_ticks: Count = 3  # a pair is expected while heard within its last so many ticks
    keep_s: Positive = 900.0  # statistics of closed ticks are kept for late frames
    beat_s: Positive = 5.0
    skew_window_s: Positive = 600.0
    skew_min_s: Positive = 2.0
    skew_disagree_s: Positive = 5.0
    skew_disagree_count: Count = 5
    nodes_max: Count = 20_000
    entities_max: Count = 64
    forget_unlisted_s: Positive = 1_800.0  # a silent node that no listing names is forgotten
    forget_s: Positive = 86_400.0  # the same where nobody lists nodes


class ZscoreSettings(Section, frozen=True, kw_only=True):
    """The published rule of Aegis: mean + 2 sd over the peers for the whole window."""

    enabled: bool = True
    pooled: bool = False
    window_s: Positive = 600.0
    sigmas: Positive = 2.0
    coverage: Share = 0.9
    group_min: Count = 6


class RobustPeersSettings(Section, frozen=True, kw_only=True):
    """Median and MAD of the peers, a usual offset per node, and a CUSUM over ticks."""

    enabled: bool = True
    group_min: Count = 4
    samples_min: Count = 12  # of a node in its group, before anything is said of it
    counter_samples_min: Count = 5  # the same where no offset is learned: what should be zero
    covered_s: Positive = 300.0  # and so much time; gaps do not count
    drift_sigmas: Positive = 1.0
    threshold_sigmas: Positive = 10.0
    fast_s: Positive = 30.0  # the largest shift takes so long, two ticks at least: z is cut to that
    offset_errors: NotNegative = 2.0  # standard errors of the offset that are added to the drift
    calm_sigmas: Positive = 3.0  # a higher CUSUM stops the learning of the offset
    effect_sigmas: Positive = 6.0  # a scale is at least the metric's smallest effect over this
    relative_floor: NotNegative = 0.01  # and at least this share of the peers' median
    smooth_samples: Count = 60
    level_samples: Count = 6
    offset_s: Positive = 7_200.0  # how fast the usual offset follows
    shift_s: Positive = 21_600.0  # how fast a lasting shift becomes usual
    gap_s: Positive = 900.0  # a longer gap in the source starts the CUSUM anew
    mates_s: NotNegative = 30.0  # a finding waits for others that are on their way; two ticks


class TelemetryQualitySettings(Section, frozen=True, kw_only=True):
    """Metrics that lie, freeze or vanish: faults of the collector, not of the machine."""

    enabled: bool = True
    stuck_s: Positive = 600.0
    busy_percent: Positive = 90.0  # utilisation from which a GPU cannot have an idle engine
    gone_s: Positive = 120.0
    seen_samples: Count = 6  # a metric is expected of a node that sent it so often
    everybody_share: Share = 0.9
    frozen_samples: Count = 20
    findings_max: Count = 10_000


class CriticalSettings(Section, frozen=True, kw_only=True):
    """Events that need no statistics."""

    enabled: bool = True
    echo_s: Positive = 180.0  # NVIDIA's burst: events of a node closer than this are one story
    repeat_window_s: Positive = 86_400.0
    repeat_count: Count = 5
    repeat_apart_s: NotNegative = 60.0  # lines closer than this are one occurrence
    contained_window_s: Positive = 3_600.0  # five contained memory errors in it: the GPU goes
    contained_count: Count = 5
    location_count: Count = 2  # bursts of 13 or 31 at one place: diagnose the GPU (NVSentinel)
    jobs_count: Count = 3  # different jobs that one GPU killed with 13, 31, 43, 45 or 66
    spread_gpus: Count = 2  # GPUs of one job that see 13 or 31 in one burst: the job's own code
    same_event_s: Positive = 60.0  # an exporter that repeats the kernel within it tells nothing new
    cancels: tuple[XidPair, ...] = ("162:163",)  # the first Xid ends what the second began
    witness_s: Positive = 600.0  # two signs of one device so close speak for each other
    stale_s: Positive = 900.0  # a line that its agent reads so much later proves nothing of now
    host_repeat_count: Count = 3  # lock-ups and blocked tasks within `witness_s` that make a fault
    conditions_max: Count = 10_000


class FlapSettings(Section, frozen=True, kw_only=True):
    """Links that go down and come back."""

    enabled: bool = True
    fast_window_s: Positive = 300.0  # drops in it are counted for the ladder (ByteRobust: 2)
    slow_window_s: Positive = 43_200.0
    slow_count: Count = 3  # drops in it are a fault by themselves (GPUd)
    once_s: NotNegative = 600.0  # a single drop is over after so long; 0: never
    stable_s: NotNegative = 3_600.0  # a flapping port after so long without a bad sample; 0: never
    boot_grace_s: NotNegative = 300.0  # drops so soon after a boot are the boot
    ports_max: Count = 20_000


class DevicesSettings(Section, frozen=True, kw_only=True):
    """GPUs and NICs that vanish from their node's telemetry, and drivers that hang."""

    enabled: bool = True
    missed_ticks: Count = 3  # NVSentinel: gone after three misses
    witness_s: Positive = 600.0
    boot_grace_s: NotNegative = 300.0
    nodes_max: Count = 20_000


class EccSettings(Section, frozen=True, kw_only=True):
    """Corrected memory errors that come too often."""

    enabled: bool = True
    errors_per_second: Positive = 10.0
    ticks: Count = 2
    clear_s: Positive = 600.0
    findings_max: Count = 10_000


class IdleSettings(Section, frozen=True, kw_only=True):
    """Jobs that hold GPUs and do nothing with them."""

    enabled: bool = True
    idle_s: Positive = 1_200.0
    nodes_share: Share = 0.9  # of the job's nodes
    busy_percent: Positive = 1.0  # a GPU above it works
    process_mib: Positive = 2_048.0  # less GPU memory than this in use: no process
    jobs_max: Count = 1_000


class AttemptsSettings(Section, frozen=True, kw_only=True):
    """Jobs that restart and never get further."""

    enabled: bool = True
    count: Count = 3
    apart_s: NotNegative = 60.0  # nodes of one restart come back within this
    jobs_max: Count = 1_000


class StatesSettings(Section, frozen=True, kw_only=True):
    """Throttle bits, row remapping, ports: when a state is shared it is nobody's own."""

    enabled: bool = True
    shared_nodes_min: Count = 3
    shared_share: Share = 0.1  # of the job's nodes
    cells_max: Count = 50_000


class StragglerSettings(Section, frozen=True, kw_only=True):
    """Slow jobs from step time, slow ranks from compute time."""

    enabled: bool = True
    slow_ratio: Annotated[float, Meta(gt=1.0)] = 1.1
    sigmas: Positive = 4.0
    baseline_steps: Count = 128
    baseline_min_steps: Count = 20
    warmup_steps: Count = 5
    recent_steps: Count = 6
    recent_slow_steps: Count = 5
    rank_ratio: Annotated[float, Meta(gt=1.0)] = 1.2
    rank_window_steps: Count = 20
    rank_min_steps: Count = 8
    rank_share: Share = 0.5
    chance_max: Positive = 0.01  # ranks that may stand out so by chance, as the others vary
    report_share: Share = 0.25  # of the job's ranks and nodes; fewer prove nothing
    group_min: Count = 6  # below it no value can be two sigmas from the mean
    vote_s: Positive = 10.0  # ByteRobust: an aggregation every 10 s
    vote_rounds: Count = 5
    vote_marks: Count = 4  # rounds in which the node must have had the most outliers
    clear_steps: Count = 10
    idle_s: Positive = 3_600.0  # a job that ends no step for so long is no longer judged
    jobs_max: Count = 1_000


class ProgressSettings(Section, frozen=True, kw_only=True):
    """When a job stands still: each phase has a limit, learned from its past, and a ceiling."""

    enabled: bool = True
    train_floor_s: Positive = 60.0
    train_multiple: Positive = 3.0  # of the median time between steps
    train_samples: Count = 5
    pause_multiple: Positive = 1.5  # of a pause that came at least twice
    phase_multiple: Positive = 3.0  # of the longest time that the phase took
    init_floor_s: Positive = 1_500.0  # a first step that compiles for 20 min is healthy
    evaluation_floor_s: Positive = 900.0
    checkpoint_floor_s: Positive = 300.0
    unlearned_s: Positive = 1_800.0  # of a phase that was never seen to end
    train_ceiling_s: Positive = 600.0  # PyTorch's collective time-out; more where steps are longer
    init_ceiling_s: Positive = 7_200.0
    evaluation_ceiling_s: Positive = 7_200.0
    checkpoint_ceiling_s: Positive = 3_600.0
    tensor_idle_ratio: Share = 0.005
    tensor_idle_s: Positive = 30.0
    rdma_zero_bytes_per_second: Positive = 1e6  # per node; management traffic is less
    rdma_s: Positive = 600.0
    nodes_share: Share = 0.9  # of the job's nodes that report
    leap_s: Positive = 30.0  # a longer gap of the log itself proves nothing


class TrainingSettings(Section, frozen=True, kw_only=True):
    """NaN and infinite loss or gradient norm."""

    enabled: bool = True
    clear_steps: Count = 20
    grad_norm_steps: Count = 5  # fp16 loss scaling skips single steps with an infinite norm
    idle_s: Positive = 3_600.0
    jobs_max: Count = 1_000


class CurvesSettings(Section, frozen=True, kw_only=True):
    """Loss, gradient norm and MFU against the job's own past."""

    enabled: bool = True
    at_once_ratio: Annotated[float, Meta(gt=1.0)] = 5.0  # ByteRobust
    loss_ratio: Annotated[float, Meta(gt=1.0)] = 1.4
    grad_norm_ratio: Annotated[float, Meta(gt=1.0)] = 2.0
    efficiency_ratio: Share = 0.9
    sigmas: Positive = 6.0
    usual_steps: Count = 128
    usual_min_steps: Count = 20
    warmup_steps: Count = 50  # the learning rate still rises
    recent_steps: Count = 6
    recent_flagged_steps: Count = 4
    clear_steps: Count = 20
    drift_ratio: Annotated[float, Meta(gt=1.0)] = 1.15  # of the loss to its lowest level
    drift_block_steps: Count = 8  # a level is the median of so many steps, twice as many later on
    drift_blocks: Count = 3  # levels in a row above the bound
    drift_step_share: Share = 0.6  # of the rise; more within two blocks is a step, not a creep
    jobs_max: Count = 1_000


class SilenceSettings(Section, frozen=True, kw_only=True):
    """Nodes that were heard and are not any more."""

    enabled: bool = True
    patience_s: Positive = 60.0
    patience_ticks: Count = 3
    everybody_share: Share = 0.5  # beyond it the blind spot is ours


class ShouldBeZeroSettings(Section, frozen=True, kw_only=True):
    """Abnormal-operation metrics judged alone: what zscore cannot see when many are bad."""

    enabled: bool = True
    hold_s: Positive = 60.0  # robust_peers waits as long: mates are known before anyone is named
    share: Share = 0.9
    clear_share: Share = 0.5


class CanarySettings(Section, frozen=True, kw_only=True):
    """Records that show that the way through the engine is open."""

    enabled: bool = True


class CorrelationSettings(Section, frozen=True, kw_only=True):
    """How findings become incidents."""

    clear_s: Positive = 600.0
    reopen_s: Positive = 1_800.0
    evidence_join_s: Positive = 240.0  # evidence that began at another time is a coincidence
    onset_slack_s: NotNegative = 15.0  # the same beside the resolution of both onsets, where known
    join_s: Positive = 900.0  # a slow job and a node's evidence further apart are two stories
    others_nodes_min: Count = 3  # evidence on a node from other nodes counts from so many on
    others_share: Share = 0.1  # and from this share of the job's nodes
    leaf_nodes_min: Count = 3
    leaf_share: Share = 0.5
    everybody_share: Share = 0.5
    incidents_max: Count = 10_000
    evidence_max: Count = 64
    findings_max: Count = 50_000


class PolicySettings(Section, frozen=True, kw_only=True):
    """The ladder's numbers (ByteRobust, Aegis)."""

    network_events: Count = 2
    network_window_s: Positive = 300.0
    evidence_wait_s: Positive = 900.0  # a slow job without node evidence is diagnosed after this
    confidence_min: Share = 0.5
    silent_wait_s: Positive = 120.0  # a silent node whose job still stands still then is isolated
    suspects_max: Count = 2  # more hosts than this are no longer one host's fault
    blind_share_max: Share = 0.5  # peers that nobody hears cannot be compared with
    distributed_wait_s: Positive = 120.0  # so long after the first host's error others may follow
    distributed_nodes_min: Count = 6  # a job of fewer has too few healthy hosts for a contrast
    attempts_window_s: Positive = 86_400.0  # what was tried longer ago says nothing of a new crash
    code_change_s: Positive = 86_400.0  # code that changed within it is rolled back when it fails
    group_eviction: Literal["cheaper", "whole", "ranked"] = "cheaper"  # by GPU-hours lost
    ranked_nodes: Count = 2  # of a parallel group, those that stand out most
    group_restart_s: NotNegative = 600.0  # from the stop to the first step, of the whole job
    group_again_s: NotNegative = 1_800.0  # the same once more, with finding it, after a wrong guess
    group_diagnosis_s: NotNegative = 14_400.0  # so long an evicted node is away for its checks


class EngineSettings(Section, frozen=True, kw_only=True):
    """Everything the fold and its `decide` read."""

    cluster: str = "main"
    shard: str = "main"
    ticks: TickSettings = TickSettings()
    zscore: ZscoreSettings = ZscoreSettings()
    robust_peers: RobustPeersSettings = RobustPeersSettings()
    telemetry_quality: TelemetryQualitySettings = TelemetryQualitySettings()
    critical: CriticalSettings = CriticalSettings()
    flap: FlapSettings = FlapSettings()
    devices: DevicesSettings = DevicesSettings()
    ecc: EccSettings = EccSettings()
    idle: IdleSettings = IdleSettings()
    attempts: AttemptsSettings = AttemptsSettings()
    states: StatesSettings = StatesSettings()
    straggler: StragglerSettings = StragglerSettings()
    progress: ProgressSettings = ProgressSettings()
    training: TrainingSettings = TrainingSettings()
    curves: CurvesSettings = CurvesSettings()
    silence: SilenceSettings = SilenceSettings()
    should_be_zero: ShouldBeZeroSettings = ShouldBeZeroSettings()
    canary: CanarySettings = CanarySettings()
    correlation: CorrelationSettings = CorrelationSettings()
    policy: PolicySettings = PolicySettings()


def settings_digest(settings: EngineSettings) -> str:
    """16 hex digits that tell two settings apart."""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:16]


class SecuritySettings(Section, frozen=True, kw_only=True):
    """How the broker and we prove ourselves to each other (docs/security.md)."""

    protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    ca_file: str = ""  # PEM; who signs the brokers' certificates; "": whom the system trusts
    certificate_file: str = ""  # PEM; ours, where brokers want one
    key_file: str = ""  # PEM, not encrypted; "": it is in certificate_file
    mechanism: Literal["scram-sha-512", "scram-sha-256", "plain"] = "scram-sha-512"
    username: str = ""
    password: Secret = ""  # better password_file, or NODEWARDEN_KAFKA__SECURITY__PASSWORD
    password_file: str = ""  # one line, read at each connection

    def __repr__(self) -> str:
        """Without the password."""
        return f"SecuritySettings({self.protocol}, {self.mechanism}, {self.username!r})"


class KafkaSettings(Section, frozen=True, kw_only=True):
    """How every service reaches the broker, and what `topics create` makes."""

    brokers: tuple[str, ...] = ("127.0.0.1:9092",)
    request_timeout_s: Positive = 20.0
    replication: Count = 1  # 3 on a cluster of brokers
    min_insync_replicas: Annotated[int, Meta(ge=0)] = 0  # 0: replication - 1, at least 1
    compression: Literal["gzip", "producer"] = "producer"  # of what brokers keep; producer: none
    retention_days: dict[str, Positive] = {}  # telemetry = 7.0; topics not named keep their own
    record_max_bytes: Count = 1_000_000  # a larger record is never sent
    security: SecuritySettings = SecuritySettings()


class StreamSettings(Section, frozen=True, kw_only=True):
    """The Faust worker."""

    instance: str = ""  # unique a worker (StatefulSet ordinal, unit name); "": the host's name
    session_s: Annotated[float, Meta(ge=6.0, le=60.0)] = 10.0
    snapshot_s: Positive = 30.0  # a restart folds again what came since the last snapshot
    metrics_address: str = "127.0.0.1:9108"  # "" serves no metrics
    no_progress_s: Positive = 60.0  # with lag and without progress the worker ends itself
    settings_poll_s: Positive = 2.0  # how soon a changed settings file is noticed


class ArchiveSettings(Section, frozen=True, kw_only=True):
    """The archiver."""

    roll_bytes: Count = 128 * 1024 * 1024  # a file ends beyond so much on disk
    roll_s: Positive = 3_600.0  # and after so long
    flush_bytes: Count = 256 * 1024  # of text in one zstd frame
    sync_s: Annotated[float, Meta(gt=0.0, le=5.0)] = 2.0  # a power cut loses no more; Kafka has it
    keep_days: NotNegative = 0.0  # older files are removed, never a partition's newest; 0: none
    keep_bytes: Annotated[int, Meta(ge=0)] = 0  # the oldest go beyond it; 0: none
    staging_dir: str = ""  # where files grow that an object store gets whole; needed with a URL
    staging_max_bytes: Count = 8 * 1024 * 1024 * 1024  # with more waiting, reading pauses
    endpoint_url: str = ""  # of an S3-compatible store that is not Amazon's
    metrics_address: str = "127.0.0.1:9109"  # "" serves no metrics


class CollectSettings(Section, frozen=True, kw_only=True):
    """The node agent. How often it reads is `engine.ticks`: what is expected is what is sent."""

    node: str = ""  # as the scheduler calls it; "": the host's name
    exporters: tuple[str, ...] = ("http://127.0.0.1:9400/metrics",)
    exporter_timeout_s: Annotated[float, Meta(gt=0.0, le=10.0)] = 2.0
    exporter_max_bytes: Count = 8_000_000
    nic: bool = True
    ethtool: str = "ethtool"  # the tool's name or path; "": its counters are not read
    rdma: str = ""  # "rdma" where /sys/class/infiniband has no hw_counters
    ports_up: tuple[str, ...] = ()  # "mlx5_3/1" or a whole card "mlx5_3", meant to be up
    ports_down: tuple[str, ...] = ()  # meant to be down; of the others nobody says
    kmsg: str = "/dev/kmsg"  # "": kernel lines are not read
    journalctl: str = "journalctl"  # where kmsg may not be read; "": never
    nvidia_smi: str = "nvidia-smi"  # names the GPUs where no exporter does; "": never
    training_logs: tuple[str, ...] = ()  # "/logs/{job}/rank-{rank}.log"; * and {node} are known too
    step_socket: str = "/run/nodewarden/steps.sock"  # StepReporter and `run` send there; "": none
    nccl_files: tuple[str, ...] = ()  # flight recorder, Inspector: "/dumps/{job}/nccl_trace_rank_*"
    stack_files: tuple[str, ...] = ()  # py-spy, faulthandler; templates as of training_logs
    jobs_dir: str = "/run/nodewarden/jobs"  # Slurm's prolog writes there; "": none
    host: bool = True  # CPUs, pressure, swap, TCP, file systems; frames of source "host"
    hardware_s: Positive = 600.0  # hardware is said again
    sys_path: str = "/sys"
    proc_path: str = "/proc"
    state_dir: str = "/var/lib/nodewarden"  # positions, and records while the broker is away
    spool_max_bytes: Count = 256 * 1024 * 1024
    metrics_address: str = "127.0.0.1:9107"  # "" serves no metrics


class SlurmSettings(Section, frozen=True, kw_only=True):
    """The inventory out of Slurm's commands; `partitions` also holds for slurmrestd."""

    squeue: str = "squeue"  # each a name or a path
    sinfo: str = "sinfo"
    scontrol: str = "scontrol"
    conf: str = ""  # slurm.conf, where it is not in its usual place
    output: Literal["auto", "json", "text"] = "auto"  # text: Slurm before 21.08, or without JSON
    partitions: tuple[str, ...] = ()  # of these; (): of all
    topology: bool = True  # leaf switches and blocks, `scontrol show topology`
    reservations: bool = True  # those for maintenance are windows; also of slurmrestd
    timeout_s: Positive = 20.0  # of one command
    output_max_bytes: Count = 200_000_000


class SlurmrestdSettings(Section, frozen=True, kw_only=True):
    """The inventory out of slurmrestd."""

    url: str = ""  # http://host:6820, https://host or unix:/run/slurmrestd.sock
    user: str = ""  # whose token it is; "": nobody is named, the token says it
    token_file: str = ""  # holds the JWT, read again for each request; "": the socket is trusted
    ca_file: str = ""  # of https, where the system's authorities do not know it
    version: str = ""  # "v0.0.41"; "": the newest that both know
    timeout_s: Positive = 20.0
    answer_max_bytes: Count = 200_000_000


class KubernetesSettings(Section, frozen=True, kw_only=True):
    """The inventory out of the Kubernetes API."""

    kubeconfig: str = ""  # "": the service account of the pod, else the user's own file
    context: str = ""
    namespaces: tuple[str, ...] = ()  # of training pods; (): all
    node_selector: str = ""  # label selectors: what else there is, is not watched
    pod_selector: str = ""
    job_labels: tuple[str, ...] = ()  # that name a pod's job, before those of the known operators
    rack_labels: tuple[str, ...] = ("topology.kubernetes.io/rack",)  # of these the first there is
    leaf_labels: tuple[str, ...] = (
        "network.topology.nvidia.com/leaf", "fabric.topograph.run/tier-0",
        "topology.k8s.aws/network-node-layer-3",
    )  # fmt: skip
    pod_labels: tuple[str, ...] = (
        "network.topology.nvidia.com/spine", "fabric.topograph.run/tier-1",
        "topology.k8s.aws/network-node-layer-2",
    )  # fmt: skip
    watch_s: Annotated[float, Meta(ge=5.0, le=3_600.0)] = 120.0  # a watch is begun anew after it
    timeout_s: Positive = 20.0
    page: Annotated[int, Meta(ge=1, le=10_000)] = 500  # of one answer of a listing


class InventorySettings(Section, frozen=True, kw_only=True):
    """The poller that tells the log who runs where."""

    source: Literal["", "file", "slurm", "slurmrestd", "kubernetes"] = ""  # or by an option
    file: str = ""  # jobs.json
    topology_file: str = ""  # as jobs.json; its "topology" goes before what the scheduler says
    protected: tuple[str, ...] = ()  # nodes never to be isolated, "login[1-2]"
    keep_ended_s: NotNegative = 1_800.0  # ended jobs and attempts stay listed, for what comes late
    poll_s: Positive = 5.0  # how often the source is asked
    listing_s: Positive = 600.0  # everything is said again
    part_bytes: Annotated[int, Meta(ge=10_000, le=900_000)] = 500_000  # of one record of a listing
    metrics_address: str = "127.0.0.1:9110"  # "" serves no metrics
    slurm: SlurmSettings = SlurmSettings()
    slurmrestd: SlurmrestdSettings = SlurmrestdSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()


class PrometheusSettings(Section, frozen=True, kw_only=True):
    """`collect --prometheus`: reading the Prometheus that a site has."""

    url: str = ""  # "http://prometheus:9090"; "": none, unless --prometheus names one
    poll_s: Positive = 5.0
    delay_s: NotNegative = 10.0  # samples are asked for when they are so old: scrapes take time
    page_s: Annotated[float, Meta(ge=1.0, le=3_600.0)] = 60.0  # of the past in one question
    first_s: NotNegative = 120.0  # without a saved position it begins so far back
    lookback_s: Positive = 3_600.0  # after an outage no more is caught up; the rest is a gap, said
    timeout_s: Annotated[float, Meta(ge=1.0, le=300.0)] = 30.0
    answer_max_bytes: Count = 64_000_000  # of one answer; a larger one is asked for in parts
    names_s: Positive = 300.0  # how often metric names and the inventory's names are asked for
    match: str = ""  # more label matchers, as cluster="a",job=~"dcgm.*"
    headers: dict[str, str] = {}  # {"X-Scope-OrgID" = "team"}
    token_file: str = ""  # a bearer token, read anew each time
    ca_file: str = ""  # "": the system's


class SyslogSettings(Section, frozen=True, kw_only=True):
    """`collect --syslog`: kernel lines of nodes and lines of switches, over TCP and UDP."""

    address: str = ""  # "0.0.0.0:5514"; "": none, unless --syslog names one
    queue_lines_max: Annotated[int, Meta(ge=100, le=10_000_000)] = 100_000
    line_max_bytes: Annotated[int, Meta(ge=480, le=65_536)] = 16_384
    connections_max: Count = 16_384  # with more the one that was silent for longest is closed
    hosts_max: Count = 20_000
    ports_file: str = ""  # jobs.json whose topology says which NIC is behind which switch port


_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)"
WindowLine = Annotated[
    str,
    Meta(
        pattern=rf"^{_TIME}/{_TIME}( \S+)?$",
        extra={"wanted": "SINCE/UNTIL NODES, times in ISO 8601 with a zone"},
    ),
]


class RailSettings(Section, frozen=True, kw_only=True):
    """What stands between a verdict and an act; every "no" is in the audit with its reason."""

    mode_default: ActMode = "observe"
    mode: dict[str, ActMode] = {}  # per action: isolate_and_restart = "approve"
    job_nodes_per_hour: Count = 2
    job_nodes_per_day: Count = 4
    rack_nodes_per_hour: Count = 2
    rack_nodes_per_day: Count = 4
    leaf_nodes_per_hour: Count = 2
    leaf_nodes_per_day: Count = 4
    pool_nodes_per_hour: Count = 4
    pool_nodes_per_day: Count = 12
    cluster_nodes_per_hour: Count = 4
    cluster_nodes_per_day: Count = 12
    quarantine_nodes_per_day: Count = 64  # of a job's quarantine for offline diagnosis: its own
    breaker_nodes: Count = 8  # verdicts want so many different nodes out within the window: open
    breaker_window_s: Positive = 600.0
    breaker_close_nodes: Annotated[int, Meta(ge=0)] = 2  # and it closes at so few
    breaker_share: Share = 0.3  # or so large a share of one rack, leaf, pool or job opens it
    breaker_share_nodes_min: Count = 3  # but no fewer nodes than this do
    verdict_max_s: Positive = 3_600.0  # an older one is not acted on; longer than the cooldown
    attempts_max: Count = 3  # of one node within the window; then a person looks
    attempts_window_s: Positive = 604_800.0
    cooldown_s: NotNegative = 1_800.0  # after something was done to a node
    settle_s: NotNegative = 600.0  # after a boot
    undo_s: NotNegative = 86_400.0  # a node that a person released is left alone so long
    telemetry_max_s: Positive = 60.0  # older readings prove nothing now
    listing_max_s: Positive = 1_800.0
    blind_share_max: Share = 0.2  # with more blind nodes nothing is done without a person
    protected: tuple[str, ...] = ()  # nodes that are never taken out, "login[1-2]"
    shadow: tuple[str, ...] = ()  # rungs or detectors that are only recorded so far
    maintenance: tuple[WindowLine, ...] = ()  # "SINCE/UNTIL n[1-4],n7", ISO 8601 with a zone


WayOfRestarting = Literal["partial", "in_place", "replacement", "requeue"]


class RecoverySettings(Section, frozen=True, kw_only=True):
    """How a job is brought back: the ways of restarting it, and how long each state may last."""

    modes: tuple[WayOfRestarting, ...] = ("partial", "in_place", "replacement", "requeue")
    now_s: Positive = 120.0  # until the nodes are out and the job may be stopped
    checkpoint_s: Positive = 3_600.0  # the same where a checkpoint is waited for
    job_end_s: Positive = 604_800.0  # the same where the job's end is
    stop_s: Positive = 120.0
    clean_s: Positive = 120.0
    replace_s: Positive = 300.0
    restart_s: Positive = 900.0  # until the job runs again
    look_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 2.0  # how often the scheduler is asked
    tries_max: Annotated[int, Meta(ge=1, le=10)] = 5  # of a command that a check holds back


class ActSlurmSettings(Section, frozen=True, kw_only=True):
    """Slurm as `act` gives it commands: through its own commands, or through slurmrestd."""

    api: Literal["commands", "rest"] = "commands"
    scontrol: str = "scontrol"  # each a name or a path
    scancel: str = "scancel"
    sacct: str = ""  # asked how jobs ended that Slurm has forgotten; "": nobody is
    conf: str = ""  # slurm.conf, where it is not in its usual place
    output: Literal["auto", "json", "text"] = "auto"  # text: Slurm before 23.02, or without JSON
    url: str = ""  # of slurmrestd: http://host:6820, https://host or unix:/run/slurmrestd.sock
    user: str = ""  # whose token it is; "": nobody is named, the token says it
    token: Secret = ""  # better token_file, or NODEWARDEN_ACT__SLURM__TOKEN
    token_file: str = ""  # holds the JWT, read again for each request
    ca_file: str = ""  # of https, where the system's authorities do not know it
    version: str = ""  # "v0.0.41"; "": the newest that both know
    rest_lacks: Literal["refuse", "commands"] = "refuse"  # what slurmrestd cannot do, as a requeue
    timeout_s: Annotated[float, Meta(gt=0.0, le=120.0)] = 10.0  # of one command or request
    answer_max_bytes: Count = 8_000_000
    reason_prefixes_before: tuple[str, ...] = ()  # beside "nodewarden": such drains are ours too
    begin_now: bool = True  # a requeued job does not wait Slurm's two minutes
    resubmit: tuple[str, ...] = ()  # for jobs that allow no requeue: COMMAND JOB NODE,NODE


class SilencesSettings(Section, frozen=True, kw_only=True):
    """Alertmanager's silences of whole nodes are maintenance windows (docs/rails.md)."""

    url: str = ""  # of Alertmanager, http://127.0.0.1:9093; "": nobody is asked
    labels: tuple[str, ...] = (
        "node", "nodename", "instance", "Hostname", "hostname", "exported_instance",
    )  # that say which node an alert is of  # fmt: skip
    ports: tuple[str, ...] = ("9100", "9400")  # that an instance may have behind its node
    token_file: str = ""  # holds the bearer token, read again for each request
    ca_file: str = ""  # of https, where the system's authorities do not know it
    timeout_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 5.0
    answer_max_bytes: Count = 20_000_000


class ActLaunchSettings(Section, frozen=True, kw_only=True):
    """Jobs that `nodewarden launch` runs are restarted within their allocation."""

    dir: str = ""  # what jobs have as NODEWARDEN_LAUNCH_DIR; "": no job is run so


class ActMpirunSettings(Section, frozen=True, kw_only=True):
    """One job on a pool of nodes without a scheduler: hostfile, stop, clean, start."""

    job: str = "mpirun"  # its name in incidents and records
    command: tuple[str, ...] = ()  # starts it; {hostfile}, {nodes}, {code}, {config} are filled in
    clean: tuple[str, ...] = ()  # on each node before a start: ssh {node} ...; (): nothing
    pool: tuple[str, ...] = ()  # all nodes, "n[01-12]"; the first `nodes` that are not out work
    nodes: Count = 1  # that the job needs
    slots: Annotated[int, Meta(ge=1, le=1_024)] = 8  # of a node, in the hostfile
    dir: str = "/var/lib/nodewarden/mpirun"  # hostfile, output, and what is out
    grace_s: Positive = 10.0  # after SIGTERM
    clean_timeout_s: Positive = 20.0  # of all nodes together


class ActWebhookSettings(Section, frozen=True, kw_only=True):
    """Commands as signed POSTs: somebody else's service carries them out, at most once each."""

    url: Secret = ""  # its path may be the secret
    key: Secret = ""  # of the HMAC; rather NODEWARDEN_ACT__WEBHOOK__KEY, at least 16 characters
    timeout_s: Annotated[float, Meta(gt=0.0, le=120.0)] = 10.0
    ca_file: str = ""


class ActCommandSettings(Section, frozen=True, kw_only=True):
    """Commands as programs of the site, one a node; {node}, {job}, {incident} are filled in."""

    isolate: tuple[str, ...] = ()  # (): is refused
    release: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()  # once a job
    timeout_s: Annotated[float, Meta(gt=0.0, le=300.0)] = 20.0
    output_max_bytes: Count = 65_536


class VersionSettings(Section, frozen=True, kw_only=True):
    """Updates of a job's code and configuration, and what is compared after a planned restart."""

    forced_s: Positive = 86_400.0  # an update that joined no restart by then gets its own
    steps_min: Count = 5  # so many steps must have been run twice before anything is said
    loss_rel: Positive = 0.02  # a re-run step's loss may differ so much from the earlier run's
    grad_norm_rel: Positive = 0.2
    throughput_drop_rel: Positive = 0.1  # so much slower, in the median, is a difference
    steps_kept: Count = 2_000  # of each job, before and after
    compare_s: Positive = 21_600.0  # after it what was re-run by then is all there is


class ActSettings(Section, frozen=True, kw_only=True):
    """`act`: the action service, its API and its commands."""

    rails: RailSettings = RailSettings()
    recovery: RecoverySettings = RecoverySettings()
    dry_run: bool = True  # nothing but records comes of a command
    # Who carries commands out; "": nobody.
    executor: Literal["", "slurm", "mpirun", "webhook", "command"] = ""
    slurm: ActSlurmSettings = ActSlurmSettings()
    launch: ActLaunchSettings = ActLaunchSettings()
    mpirun: ActMpirunSettings = ActMpirunSettings()
    webhook: ActWebhookSettings = ActWebhookSettings()
    command: ActCommandSettings = ActCommandSettings()
    versions: VersionSettings = VersionSettings()
    address: str = "127.0.0.1:9120"  # of the API
    url: str = "http://127.0.0.1:9120"  # where the commands find it
    token: Secret = ""  # of who gives the commands; rather NODEWARDEN_ACT__TOKEN than the file
    tokens: dict[str, TokenLine] = {}  # name = "operator:<SHA-256 of the token, hex>"
    body_max_bytes: Annotated[int, Meta(ge=256, le=1_000_000)] = 16_384  # of a request
    metrics_address: str = "127.0.0.1:9111"
    workers: tuple[str, ...] = ("http://127.0.0.1:9108/metrics",)  # of all workers: who is blind
    inventory: str = "http://127.0.0.1:9110/metrics"  # of the inventory poller: the listing's age
    silences: SilencesSettings = SilencesSettings()
    transactional_id: str = "nodewarden-act"  # one active instance per id
    session_s: Annotated[float, Meta(ge=6.0, le=300.0)] = 10.0  # a silent instance is replaced
    act_within_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 5.0  # of the acknowledged intent
    call_timeout_s: Annotated[float, Meta(gt=0.0, le=300.0)] = 30.0  # of one call of an executor
    first_observe_s: NotNegative = 3_600.0  # after the first start nothing is done for so long
    approval_s: Positive = 900.0  # a decision that waits for a person expires after it
    command_s: Positive = 120.0  # so long an approved decision may be carried out
    snapshot_records: Count = 1_000  # the ledger's snapshot is said again after so many records
    keep_s: Positive = 604_800.0  # what is over is forgotten by the ledger; the log keeps it
    entries_max: Count = 20_000  # decisions and requests in memory, each


class NotifyPlaceSettings(Section, frozen=True, kw_only=True):
    """`act` tells people. Receivers and routes stand in a file of their own (docs/paging.md)."""

    file: str = ""  # the notify file (TOML); "": nobody is told
    state_dir: str = "/var/lib/nodewarden/notify"  # what is told and what is still to be told


class WatchSettings(Section, frozen=True, kw_only=True):
    """`inventory` sends canaries through the engine and watches them come out."""

    canary_s: NotNegative = 300.0  # one into each live shard so often; 0: none
    canary_late_s: Positive = 60.0  # so long it may take


class DeadmanSettings(Section, frozen=True, kw_only=True):
    """A ping to a URL outside while `inventory` sees that the engine sees; else it is withheld."""

    url: Secret = ""  # its owner alarms when pings stay away, as healthchecks.io does; "": no ping
    every_s: Annotated[float, Meta(ge=1.0)] = 60.0
    timeout_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 10.0
    ca_file: str = ""  # of https, where the system's authorities do not know it
    workers: tuple[str, ...] = ("http://127.0.0.1:9108/metrics",)  # of all workers
    workers_timeout_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 5.0
    sources: tuple[str, ...] = ("gpu",)  # that must be seen: gpu, nic, host, ...
    blind_share_max: Share = 0.5  # of the expected nodes, silent altogether or in one of `sources`

    def __repr__(self) -> str:
        """Without the URL."""
        return f"DeadmanSettings({self.every_s:g} s, {self.sources!r})"


class Configuration(Section, frozen=True, kw_only=True):
    """The settings file as a whole: the engine's part, and what only services read."""

    engine: EngineSettings = EngineSettings()
    shards: tuple[str, ...] = ("main", "history")  # partition = position
    history_shards: tuple[str, ...] = ("history",)  # of these, what imports write to
    timezone: str = "UTC"
    kafka: KafkaSettings = KafkaSettings()
    stream: StreamSettings = StreamSettings()
    archive: ArchiveSettings = ArchiveSettings()
    inventory: InventorySettings = InventorySettings()
    collect: CollectSettings = CollectSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    syslog: SyslogSettings = SyslogSettings()
    act: ActSettings = ActSettings()
    notify: NotifyPlaceSettings = NotifyPlaceSettings()
    watch: WatchSettings = WatchSettings()
    deadman: DeadmanSettings = DeadmanSettings()
