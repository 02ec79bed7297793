"""Every line form of training logs that is read: name, example and source, for the docs."""

from __future__ import annotations

from collectors.training import bars, dlrover, failures, forms, mlperf

STEPS = (
    *((form.name, form.example, form.source) for form in forms.FORMS),
    ("progress bar", bars.BAR_EXAMPLE, "ymcui/Chinese-LLaMA-Alpaca#534, NVIDIA-NeMo/Speech#11900"),
    ("Hugging Face Trainer", bars.DICT_EXAMPLE, "AnswerDotAI/ModernBERT#233"),
    ("MLPerf", mlperf.EXAMPLE, "mlcommons/training_results_v4.1"),
    ("DLRover events", dlrover.EXAMPLE, "intelligent-machine-learning/dlrover tests"),
    ("Greyhound", forms.GREYHOUND_EXAMPLE, "wutianyuan1/Greyhound"),
)

FAILURES = (
    ("traceback", "Traceback (most recent call last):", "Python"),
    ("C++ exception", "terminate called after throwing an instance of 'c10::Error'",
     "bigscience-workshop/bigscience tr1-13B-base"),
    ("torchrun summary", "  exitcode  : -9 (pid: 14750)", "lmzpai/roboMamba#10"),
    *((form.name, form.example, form.source) for form in failures.FORMS),
)  # fmt: skip
