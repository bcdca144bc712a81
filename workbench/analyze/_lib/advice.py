"""Advice in the words of the framework and the GPU that a trace is of."""

from __future__ import annotations

import re

from workbench.tables import Trace

_JAX_FORMATS = ("xplane", "xprof json")
_AMD = re.compile(r"\bAMD\b|\bInstinct\b|\bMI\d{3}|\bgfx\d")
_COMMAND_BUFFERS = "command buffers (--xla_gpu_enable_command_buffer)"
# Rules write for PyTorch on NVIDIA's GPUs; longer phrases come before those that they hold.
_JAX = {
    "CUDA graphs, torch.compile or larger batches; fewer, larger kernels":
        f"one jax.jit over the whole step, {_COMMAND_BUFFERS}, or larger batches",
    "CUDA graphs, torch.compile, larger batches, fewer Python calls per step":
        f"one jax.jit over the whole step, {_COMMAND_BUFFERS}, larger batches, lax.scan over steps",
    "fuse (torch.compile, fused optimizer) or capture CUDA graphs":
        f"fuse (one jax.jit over the whole step) or use {_COMMAND_BUFFERS}",
    "(torch.compile)": "(one jax.jit over both)",
    "remove .item(), .cpu(), print and synchronize()":
        "remove float(), numpy.asarray(), print and block_until_ready()",
    "overlap it (prefetch, bucket size, another stream)":
        "overlap it (--xla_gpu_enable_latency_hiding_scheduler, sizes of combined collectives)",
    "overlap it: smaller buckets, prefetch, another layout of ranks":
        "overlap it: --xla_gpu_enable_latency_hiding_scheduler, or another sharding",
    "pin_memory=True in the loader and non_blocking=True in .to()":
        "jax.device_put the next batch while the step runs",
    "or copy it from pinned memory on another stream while the GPU computes (non_blocking=True)":
        "or jax.device_put it one step ahead",
    "fewer copies: contiguous tensors, views, fused or in-place operators":
        "fewer copies: donate buffers (donate_argnums), one layout, one jax.jit over neighbours",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; look for memory retries":
        "XLA_PYTHON_CLIENT_PREALLOCATE=true",
    "raise num_workers or prefetch,": "raise the workers or the prefetch of the input pipeline,",
    "more workers, prefetch_factor, pinned memory,": "more workers, prefetch to the device,",
    "record runtime calls too (ProfilerActivity.CPU, --trace=cuda, --hip-trace)":
        "record the host too (host_tracer_level of jax.profiler.ProfileOptions)",
    "record cuda_sync events (enable_cuda_sync_events), or all": "record all",
    "record with CUPTI graph-node tracing, or one step without graphs":
        "record one step without command buffers",
    "(prof.step())": "(jax.profiler.StepTraceAnnotation)",
}  # fmt: skip
_ANY = {"torch.compile": "a compiler such as torch.compile or jax.jit"}
_ON_AMD = {
    "CUDA graphs": "HIP graphs",
    "nvidia-smi -q": "amd-smi static",
    "cudaMalloc": "hipMalloc",
}


def advice_for(trace: Trace | None, text: str) -> str:
    """Write advice on a trace for its framework; of other tools than PyTorch's it is not known."""
    if trace is None:
        return text
    formats = set(trace.ranks["format"])
    names = " ".join(trace.devices["name"].dropna().astype(str).unique())
    phrases = {} if formats <= {"kineto"} else _JAX if formats <= set(_JAX_FORMATS) else _ANY
    if formats & {"rocpd", "rocprofv3"} or _AMD.search(names):
        phrases = phrases | _ON_AMD
    for phrase, replacement in phrases.items():
        text = text.replace(phrase, replacement)
    return text
