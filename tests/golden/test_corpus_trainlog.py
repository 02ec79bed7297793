"""Every training log, stack dump and collective record of the corpus gives what it should.

The goldens were read by eye against what the corpus states as the right result; what it states and
can be checked stands below as a test of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.trainlog_summary import CORPUS, DATA, GOLDEN, parsed, plain, summary

Objects = list[dict[str, Any]]
NAMES = sorted(path.name.removesuffix(".json") for path in GOLDEN.glob("*.json"))
NO_LOGS = ("_reference.txt", "_fault_injection.log")  # answers about other files


def path_of(name: str) -> Path:
    if (DATA / name).is_file():
        return DATA / name
    if not (CORPUS / name).is_file():
        pytest.skip(f"{name} is not in this checkout; it lies with the corpus beside it")
    return CORPUS / name


def read(name: str) -> Objects:
    return parsed(path_of(name))


def of_type(name: str, wanted: str) -> Objects:
    return [one for one in read(name) if one["type"] == wanted]


def steps(name: str) -> Objects:
    return of_type(name, "step")


def failures(name: str) -> Objects:
    return of_type(name, "failure")


def column(found: Objects, field: str) -> list[Any]:
    return [one.get(field) for one in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_gives_its_golden(name: str) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    assert golden == plain(summary(read(name)))


def test_every_file_of_the_corpus_has_a_golden() -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus is not beside this checkout")
    files = {path.name for path in CORPUS.iterdir() if path.is_file()}
    assert set() == {name for name in files if not name.endswith(NO_LOGS)} - set(NAMES)


def test_nothing_in_the_corpus_is_rejected() -> None:
    assert [] == [name for name in NAMES if of_type(name, "rejected")]


# Megatron-LM and Megatron-DeepSpeed


def test_the_hyphen_loss_is_the_loss_and_unused_fields_are_missing() -> None:
    found = steps("megds_gpt2_perf_n16_ds_on.out")
    assert list(range(1, 50)) == column(found, "step")
    assert (7.80343, 134.6689) == (found[46]["loss"], found[46]["step_time_s"])
    assert {None} == set(column(found, "grad_norm")) == set(column(found, "loss_scale"))


def test_the_first_interval_is_a_warm_up_and_sets_no_baseline() -> None:
    found = steps("megatron_gpt2_n64_pp64.out")
    assert [("first", 19.9324), ("train", 6.7075)] == [
        (one["kind"], one["step_time_s"]) for one in found[:2]
    ]
    assert [10] * 6 == column(found, "steps")


def test_a_gpu_crash_names_the_local_rank_and_no_host() -> None:
    (crash,) = failures("bloom176b_gpu_crash_cuda_unknown_error.log")
    assert ("cuda", "unknown_error", 3) == (crash["class"], crash["detail"], crash["local_rank"])
    assert (None, None) == (crash["rank"], crash["host"])


def test_the_loss_spike_shows_and_the_step_time_does_not_change() -> None:
    found = steps("bloom176b_loss_spike_recovers.log")
    spike = next(one for one in found if one["step"] == 31219)
    assert (5.098124, 960.351, 106.36) == (spike["loss"], spike["grad_norm"], spike["step_time_s"])
    assert (31251, 2.235667) == (found[-1]["step"], found[-1]["loss"])
    assert all(105.0 < one["step_time_s"] < 108.0 for one in found)


def test_wrapped_lines_are_joined() -> None:
    found = steps("bloom176b_throughput_drop_5pct_linewrapped.log")
    assert [105.16, 105.17, 106.25, 110.17, 111.14] == column(found, "step_time_s")
    assert [149.10, 149.09, 147.58, 142.32, 141.09] == column(found, "throughput")
    assert [2.117073, 2.116946, 2.110646, 2.12482, 2.127643] == column(found, "loss")


def test_a_scheduler_s_pulse_is_no_progress() -> None:
    found = read("bloom176b_hang_at_eval_no_nccl_timeout.log")
    assert [("step", 45000), ("evaluation", 45000)] == [(one["type"], one["step"]) for one in found]


def test_the_ecc_error_comes_before_the_out_of_memory_it_leads_to() -> None:
    found = failures("bloom13b_ecc_uncorrectable_then_misleading_oom.log")
    assert [("cuda", "ecc", "cause"), ("cuda", "ecc", "echo"), ("oom", "gpu_memory", "echo")] == [
        (one["class"], one["detail"], one["role"]) for one in found
    ]
    assert "ecc" == found[2]["echo_of"]


def test_the_loss_glitch_is_there_and_a_norm_nobody_collected_is_missing() -> None:
    found = steps("bloom13b_loss_glitch_29k.log")
    assert [2.768131, 7.343709, 8.715872] == column(found, "loss")[2:5]
    assert {None} == set(column(found, "grad_norm"))


def test_a_resume_goes_backwards_and_has_a_first_step_again() -> None:
    found = steps("bloom104b_divergence_lines.log")
    assert [7000, 7010, 7220, 6900, 6910, 6920, 6930, 6940] == column(found, "step")
    assert ["first", "first"] == [found[0]["kind"], found[3]["kind"]]
    assert (11.42026, 219645.978) == (found[1]["loss"], found[1]["grad_norm"])


def test_the_gradient_norm_leads_the_loss_by_a_step() -> None:
    found = steps("bloom104b_spike_11447.log")
    assert [12952.562, 262623.331, 254699.302] == column(found, "grad_norm")
    assert [3.062589, 3.114286, 7.71234] == column(found, "loss")


def test_a_ramp_can_be_divided_by_its_batch() -> None:
    found = steps("bloom104b_curriculum_steptime_ramp.log")
    assert [80.0, 160.0, 528.0] == [found[at]["global_batch_size"] for at in (0, 3, 4)]
    assert [31.0741, 66.4511, 207.9675, 279.2066] == [
        found[at]["step_time_s"] for at in (0, 3, 4, 5)
    ]


def test_a_first_step_of_573_s_is_a_first_step_and_skipped_steps_are_told() -> None:
    name = "bloom104b_resume_first_step_573s_loss_scale_drop.log"
    found = steps(name)
    assert ("first", 573.1258) == (found[0]["kind"], found[0]["step_time_s"])
    assert 5 == column(found, "grad_norm").count(464441.887)  # frozen while steps are skipped
    assert [17062, 17063, 17064, 17065, 17067, 17068] == column(of_type(name, "overflow"), "step")


def test_the_language_model_s_loss_is_told_from_the_balancing_loss() -> None:
    found = steps("megatron_2024_timestamp_tflops_mixtral.log")
    assert [1.825991, 1.875063, 1.834162] == column(found, "loss")
    assert [239.8, 236.0, 228.4] == column(found, "throughput")


def test_a_nan_norm_tells_although_the_loss_has_vanished() -> None:
    found = steps("megds_grad_norm_nan_loss_missing.log")
    assert [["grad_norm"]] * 3 == column(found, "nonfinite")
    assert [(None, 0.0)] * 3 == [(one["loss"], one["nan_iterations"]) for one in found]


def test_the_host_before_a_line_is_kept() -> None:
    found = steps("megatron_deepspeed_pdsh_host_prefix_tail.log")
    assert [76.0153, 75.254, 75.2496, 75.1824, 74.4949] == column(found, "step_time_s")
    assert {"vm-07-14"} == set(column(found, "host"))
    assert {2048.0} == set(column(found, "global_batch_size"))


# NVRx, NCCL, torchrun, Slurm


def test_the_port_error_is_the_cause_and_the_watchdog_its_victim() -> None:
    port, victim = failures("nvrx_6144rank_port_error_then_watchdog.log")
    assert ("network", "port_error", "cause") == (port["class"], port["detail"], port["role"])
    assert ("mlx5_3/1", "host-a", 1000) == (port["nic"], port["host"], port["rank"])
    assert (5995, "echo", 126639, "COALESCED") == (
        victim["rank"], victim["role"], victim["seq"], victim["op"],
    )  # fmt: skip
    assert 1.0 > abs(victim["at"] - victim["ran_s"] - port["at"] - 1.0)


def test_an_infinite_local_gradient_is_no_user_error_and_names_node_and_device() -> None:
    name = "nvrx_6144rank_inf_grad.log"
    root = failures(name)[0]
    assert ("numerics", 180, "nvl72005-T14", 0, 670314) == (
        root["class"], root["rank"], root["host"], root["device"], root["step"],
    )  # fmt: skip
    assert 670310 == steps(name)[-1]["step"]
    assert {()} == {tuple(one["nonfinite"]) for one in steps(name)}


def test_the_word_nan_beside_a_zero_is_no_nan() -> None:
    (step,) = read("nvrx_nan_word_and_progress_decoys.log")
    assert (5, []) == (step["step"], step["nonfinite"])


def test_a_peer_access_error_is_ambiguous_and_told_once_a_rank() -> None:
    found = failures("nvrx_peer_access_over_nvlink_ambiguous.log")
    told = [one for one in found if one["detail"] == "peer_access"]
    assert [171, 5250] == column(told, "rank")


def test_the_storage_error_is_the_cause_and_the_wrappers_are_not() -> None:
    found = failures("nvrx_ckpt_wrapper_fanout.log")
    assert [("storage", 7, "cause"), ("unknown", 8, "echo"), ("unknown", 9, "echo")] == [
        (one["class"], one["rank"], one["role"]) for one in found
    ]


def test_shutdown_noise_comes_after_the_cause_and_permissions_are_the_user_s() -> None:
    found = failures("nvrx_permission_and_finalizer_noise.log")
    assert (404, "numerics", "cause") == (found[0]["rank"], found[0]["class"], found[0]["role"])
    assert ["echo"] * 3 == column(found[1:], "role")
    assert {"user_code"} == set(column(found[2:], "class"))


def test_the_ecc_rank_is_the_cause_and_the_waiting_rank_its_victim() -> None:
    found = failures("dbe_incident_2gpu_train_log.txt")
    root, victim = found[0], found[2]
    assert (1, "ecc", 1_786_376_165.946) == (root["rank"], root["detail"], round(root["at"], 3))
    assert (0, 51753, "ALLREDUCE") == (victim["rank"], victim["seq"], victim["op"])
    assert 0.001 > abs(victim["at"] - victim["ran_s"] - 1_786_376_165.646)


def test_all_reporting_ranks_wait_for_one_collective() -> None:
    found = failures("nccl_watchdog_2025_all_ranks_same_seq.log")
    assert {1580} == set(column(found, "seq"))
    assert {0, 2, 3, 4} == set(column(found, "rank"))
    assert ["cause"] == [role for role in column(found, "role") if role == "cause"]
    assert (1582, 1579) == (found[2]["last_enqueued"], found[2]["last_completed"])


def test_wrapped_watchdog_lines_of_three_incidents_are_told_apart() -> None:
    found = failures("nccl_watchdog_pg_guid_broadcast_wrapped.log")
    causes = [one for one in found if one["role"] == "cause"]
    assert [4, 808, 7753] == column(causes, "seq")
    assert ["BROADCAST", "ALLREDUCE", "_REDUCE_SCATTER_BASE"] == column(causes, "op")
    assert [1, 2, 3, 1, 1, 0] == column(found, "rank")


def test_the_cascade_is_an_echo_of_one_hang_a_log() -> None:
    found = failures("nccl_watchdog_cleanup_cascade.log")
    causes = [one for one in found if one["role"] == "cause"]
    assert [(5, 120049), (3, 2070)] == [(one["rank"], one["seq"]) for one in causes]
    assert {"nccl"} == set(column(found, "class"))


def test_a_flushed_request_is_the_consequence_of_the_retry_that_failed() -> None:
    found = failures("nccl_ib_status12_vendor129.log")
    assert [(12, "cause", 4), (5, "echo", 4)] == [
        (one["status"], one["role"], one["device"]) for one in found[:2]
    ]
    assert ("10.0.0.59", "hostname-test", 129) == (
        found[0]["peer"], found[0]["host"], found[0]["vendor_error"],
    )  # fmt: skip


def test_a_warning_with_a_stamp_is_a_warning() -> None:
    (warning,) = failures("nccl_warn_2026_timestamp_prefix.log")
    assert ("warning", "node-01", 1_777_961_807.0) == (
        warning["role"], warning["host"], warning["at"],
    )  # fmt: skip


def test_the_launcher_s_traceback_is_never_the_cause() -> None:
    found = failures("torch_elastic_childfailed_sigkill.log")
    assert ["cause", "echo", "cause"] == column(found, "role")
    assert [-9, None, -9] == column(found, "exitcode")
    assert ("killed", "SIGKILL", "worker-0", 0) == (
        found[2]["class"], found[2]["signal"], found[2]["host"], found[2]["rank"],
    )  # fmt: skip


def test_exit_1_is_likely_user_code_and_exit_minus_6_is_not() -> None:
    found = failures("torch_elastic_old_prefix_stderr.log")
    assert [("user_code", 1, 7), ("abort", -6, 0)] == [
        (one["class"], one["exitcode"], one["local_rank"]) for one in found
    ]


def test_four_spellings_of_slurm_s_out_of_memory() -> None:
    found = failures("slurm_oom_kill_and_bus_error.log")
    assert 5 == sum(one["class"] == "oom" for one in found)
    bus = next(one for one in found if one.get("signal") == "SIGBUS")
    assert ("crash", "Orion-18-69", 289) == (bus["class"], bus["host"], bus["task"])
    assert {None} == {one["host"] for one in found if one["class"] == "cancelled"}


def test_a_launch_failure_is_cuda_s_and_ambiguous() -> None:
    (failure,) = failures("cuda_unspecified_launch_failure_xid109.log")
    assert ("cuda", "launch_failure", 1) == (failure["class"], failure["detail"], failure["rank"])


def test_broken_utf8_still_tells_a_device_side_assert() -> None:
    (failure,) = failures("utf8_broken_bytes.log")
    assert ("user_code", "device_assert") == (failure["class"], failure["detail"])


def test_the_real_npu_code_is_read_and_the_decoy_is_not() -> None:
    found = failures("dlrover_ascend_error_code_507035.log")
    assert [507035, "ERR02005"] == [one["code"] for one in found if one["event"] == "npu"]
    assert 43 == found[-1]["rank"]


# Other frameworks


def test_one_slow_step_of_22_minutes_and_two_saves() -> None:
    name = "dlrover_events_23min_step_and_ckpt.log"
    found = [one for one in steps(name) if one["form"] == "dlrover"]
    assert [177019, 177020, 177021] == column(found, "step")
    assert [1346.5, 20.5, 15.7] == [round(one["step_time_s"], 1) for one in found]
    assert [92, 91] == [round(one["duration_s"]) for one in of_type(name, "checkpoint")]
    log = next(one for one in steps(name) if one["form"] == "dlrover-log")
    assert (1374.4273, 15456.0) == (round(log["interval_s"], 4), log["consumed_samples"])


def test_a_bare_nan_of_a_python_dict_is_read() -> None:
    found = steps("hf_trainer_nan_then_zero_loss.log")
    assert [["grad_norm"]] * 3 == column(found, "nonfinite")
    assert [0.2051, 0.0, 0.0] == column(found, "loss")
    assert [None] * 3 == column(found, "step")


def test_dicts_glued_to_bars_belong_to_the_bar_before_them() -> None:
    found = steps("hf_trainer_tqdm_glued_dict.log")
    assert [None, 1, 2, 3] == column(found, "step")
    assert [0.329, None, 0.2527, 0.1512] == column(found, "loss")
    assert [[], ["loss"], [], []] == column(found, "nonfinite")


def test_the_overflows_halve_the_scale_while_the_step_time_is_steady() -> None:
    name = "deepspeed_overflow_hf_zero_loss.log"
    scales = of_type(name, "overflow")
    assert [64, 32, 16, 8, 4] == column(scales, "loss_scale")
    assert 2.0 == scales[-1]["next_loss_scale"]
    assert {131.0, 132.0} == set(column(steps(name)[1:], "step_time_s"))


def test_a_bar_s_running_average_is_no_step_time() -> None:
    found = steps("nemo_progress_bar_no_steptime.log")
    assert [794, 614, 120, 121, 122] == column(found, "step")
    assert [None, None, 0.03146, 0.03163, 0.03215] == column(found, "step_time_s")
    assert [3.09, None, 1.233, 1.288, 1.333] == column(found, "loss")


def test_what_four_ranks_print_is_one_step() -> None:
    found = steps("torchtitan_8_ranks_duplicate_lines.log")
    assert [4, 5, 14, 15] == column(found, "step")
    assert [10050.0, 10007.0, 7282.0, 7334.0] == column(found, "throughput")
    assert 1.637 == round(found[1]["step_time_s"], 3)
    assert found[2]["step_time_s"] is None  # another log


def test_colours_change_no_value() -> None:
    (step,) = steps("torchtitan_ansi_colour.log")
    plain_step = steps("torchtitan_8_ranks_duplicate_lines.log")[0]
    assert {name: step[name] for name in ("loss", "grad_norm", "throughput", "tflops_per_gpu")} == {
        name: plain_step[name] for name in ("loss", "grad_norm", "throughput", "tflops_per_gpu")
    }


def test_a_slow_step_tells_that_its_data_came_late() -> None:
    slow = next(one for one in steps("dataloader_spike_210s_single_step.log") if one["step"] == 32)
    assert (212.36, 210.16) == (slow["step_time_s"], slow["data_time_s"])


def test_times_between_stamps_are_step_times() -> None:
    found = steps("lightly_time_split_log.log")
    assert [None, 3.119, 19.886] == [
        one["step_time_s"] and round(one["step_time_s"], 3) for one in found
    ]
    assert 0.7 == found[2]["data_ratio"]


def test_the_fail_slow_shows_at_all_ranks_at_once() -> None:
    found = steps("greyhound_failslow_local_controller.log")
    assert 28 == len(found)
    assert [0, 1, 2, 3] == column(found[:4], "rank")
    assert all(1.1 < one["step_time_s"] < 1.2 for one in found[:20])
    assert all(1.3 < one["step_time_s"] < 1.4 for one in found[-4:])


def test_the_computation_check_names_rank_1() -> None:
    found = of_type("greyhound_failslow_global_controller.log", "check")
    slow = [one for one in found if one["time_ms"] > 100.0]
    assert [(1, 515.5)] == [(one["rank"], round(one["time_ms"], 1)) for one in slow]


def test_mlperf_evaluations_are_no_stalls() -> None:
    found = steps("mlperf41_nvidia_llama2_70b_lora_128nodes.log")
    throughput = [one["throughput"] for one in found if one["throughput"] is not None]
    assert 10 == len(throughput)
    assert all(233.0 < value < 235.1 for value in throughput)
    assert all(0.54 < one["step_time_s"] < 0.7 for one in found if one["step_time_s"] is not None)


def test_mlperf_prints_each_step_of_a_healthy_run() -> None:
    found = [one for one in steps("mlperf41_nvidia_gpt3_b200.log") if one["step_time_s"]]
    assert 288 == len(found)
    assert all(35.9 < one["step_time_s"] < 36.2 for one in found)
    assert {"first", "train"} == set(column(found, "kind"))


def test_maxtext_s_blocks_have_steady_steps() -> None:
    found = steps("mlperf41_google_tpu_v5p_4096_gpt3.log")
    assert 26 == len(found)
    assert all(11.2 < one["step_time_s"] < 11.3 for one in found[1:])


def test_a_note_in_words_says_nothing() -> None:
    assert [] == read("marin_512gpu_silent_hang_note.txt")


# Stacks and collectives


def test_the_odd_one_out_of_two_nodes_waits_for_data() -> None:
    found = read("bloom176b_hang_pyspy_two_nodes.txt")
    assert 16 == len(found)
    odd = [one for one in found if one["top"] not in ("broadcast", "all_reduce", "recv")]
    assert [("48", 688514, "idle", "wait")] == [
        (one["node"], one["pid"], one["state"], one["top"]) for one in odd
    ]


def test_the_single_wait_among_384_is_on_its_node() -> None:
    found = read("bloom176b_hang_pyspy_grouped_384.txt")
    assert ["node-iam52"] == [one["node"] for one in found if one["top"] == "wait"]
    assert 40 == len(found)


def test_the_collective_hangs_in_a_thread_without_a_name() -> None:
    found = read("pyspy_process_header_idle_main.txt")
    assert {14310} == set(column(found, "pid"))
    assert ["42", "928", "4076", "4077", "4079"] == column(found, "thread")
    assert [[], []] == [found[2]["frames"], found[3]["frames"]]
    assert ("active", "all_gather_into_tensor") == (found[4]["state"], found[4]["top"])


def test_old_dumps_have_hex_threads_and_tabs() -> None:
    found = read("pyspy_old_hex_thread.txt")
    assert ["0x7F4AA36D9700", "0x7F4AACDE7700"] == column(found, "thread")
    assert "_get_next_task_from_local_scheduler" == found[1]["top"]


FLIGHTS = [
    ("gpu_error_1st", 289, set(), {12}),
    ("gpu_error_2nd", 278, set(), {9, 14}),
    ("lock_gil_1st", 142, {9, 14}, {9, 14}),
    ("lock_gil_2nd", 216, {10, 15}, {10, 15}),
]


@pytest.mark.parametrize(("name", "entries", "empty", "missing"), FLIGHTS)
def test_a_flight_recorder_gives_every_entry_of_16_ranks(
    name: str, entries: int, empty: set[int], missing: set[int]
) -> None:
    found = of_type(f"fr_{name}.json", "collective")
    assert entries == len(found)
    assert set(range(16)) - empty == set(column(found, "rank"))
    assert set(range(16)) == set(column(of_type(f"fr_{name}.json", "group"), "rank"))
    assert {"scheduled"} == set(column(found, "state"))
    assert {180.0, 600.0} == set(column(found, "timeout_s"))
    assert all(1.758e9 < one["created_at"] < 1.759e9 for one in found)


@pytest.mark.parametrize(("name", "entries", "empty", "missing"), FLIGHTS)
def test_the_ranks_that_did_not_enter_follow_from_the_entries(
    name: str, entries: int, empty: set[int], missing: set[int]
) -> None:
    """Not a detector: only that the reader keeps what one needs to answer as the reference does.

    Of each group's newest all_to_all some members have an entry, the culprits have none.
    """
    found = [one for one in of_type(f"fr_{name}.json", "collective") if one["op"] == "all_to_all"]
    absent: set[int] = set()
    for group in {one["pg"] for one in found}:
        rows = [one for one in found if one["pg"] == group]
        newest = max(one["seq"] for one in rows)
        absent |= set(rows[0]["pg_ranks"]) - {one["rank"] for one in rows if one["seq"] == newest}
    assert missing == absent


def test_the_inspector_s_units_are_seconds_and_bytes() -> None:
    (first,) = read("nccl_inspector_sample_0.json")
    (second,) = read("nccl_inspector_sample_1.json")
    assert ("all_reduce", 2, 8, 1407, 0.061974) == (
        first["op"], first["rank"], first["ranks"], first["seq"], first["duration_s"],
    )  # fmt: skip
    assert (485.119099, None, 1_748_030_377.748202) == (
        first["bus_bandwidth_gbps"], first["timing_source"], first["at"],
    )  # fmt: skip
    assert ("kernel_gpu", 2_147_483_648) == (second["timing_source"], second["bytes"])


@pytest.mark.parametrize(
    ("name", "hanging"),
    [
        ("dlrover_hang_xpu_timer_metric_all.prom", 8),
        ("dlrover_normal_xpu_timer_metric_0.prom", 0),
        ("dlrover_xpu_timer_metric_single.prom", 0),
    ],
)
def test_all_ranks_hang_or_none_does(name: str, hanging: int) -> None:
    found = of_type(name, "hang")
    assert (8, hanging) == (len(found), sum(one["hang"] for one in found))


def test_kernel_times_differ_by_shape() -> None:
    found = of_type("dlrover_normal_xpu_timer_metric_0.prom", "kernel_time")
    assert {6, 7, 8, 9} >= {one["level"] for one in found if one["statistic"] == "avg"} > set()
    assert all(0.0 < one["duration_s"] < 10.0 for one in found)
