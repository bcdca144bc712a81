"""Seed in, tables and files out: demo data and jobs whose truth is known.

Makes the bundled sets ``fleet-demo``, ``failures-demo``, ``imbalance-demo``, ``hang-demo`` and
``memory-demo``, and the jobs on which tests and claims measure analyses. It is in no wheel, and
``workbench`` never imports it.
"""

from data.make._communication.embedding_outputs import embedding_outputs
from data.make._failures.hang_engine import HANG_FAULTS, HangJob
from data.make._failures.hung_job import hang
from data.make._failures.logs import failure_logs, failure_truth
from data.make._fleet.job import fleet, fleet_truth
from data.make._fleet.program import FAULTS
from data.make._fleet.troubled import TROUBLES, TroubledJob, troubled_job
from data.make._imbalance.demo import document_lengths, embedding_tables, imbalance
from data.make._imbalance.pipeline_job import CAUSES, JobShape, PipelineJob, pipeline_job
from data.make._traces.memory import Frame, MemoryAllocator, memory, memory_snapshot
from data.make._truth import FAILURE_TRUTH, FLEET_TRUTH, HANG_TRUTH, JOB_TRUTH, TROUBLE_TRUTH

__all__ = [
    "CAUSES",
    "FAILURE_TRUTH",
    "FAULTS",
    "FLEET_TRUTH",
    "HANG_FAULTS",
    "HANG_TRUTH",
    "JOB_TRUTH",
    "TROUBLES",
    "TROUBLE_TRUTH",
    "Frame",
    "HangJob",
    "JobShape",
    "MemoryAllocator",
    "PipelineJob",
    "TroubledJob",
    "document_lengths",
    "embedding_outputs",
    "embedding_tables",
    "failure_logs",
    "failure_truth",
    "fleet",
    "fleet_truth",
    "hang",
    "imbalance",
    "memory",
    "memory_snapshot",
    "pipeline_job",
    "troubled_job",
]
