# Each name is imported when it is first used; this list is its only one.

# Traces
from ._traces.chakra.writing import write_chakra as write_chakra
from ._traces.chrome_writing import write_chrome_trace as write_chrome_trace
from ._traces.rank_files import rank_files as rank_files
from ._traces.rank_store import write_ranks as write_ranks
from ._traces.memory.reader import memory as memory
from ._traces.obfuscation import write_obfuscated as write_obfuscated
from ._traces.reader import traces as traces
from ._traces.trace_profile import (
    trace_profile as trace_profile,
    write_trace_profile as write_trace_profile,
)

# Workload imbalance
from ._imbalance.document_lengths import document_lengths as document_lengths
from ._imbalance.embedding_tables import embedding_tables as embedding_tables
from ._imbalance.job_operations import job_operations as job_operations
from ._imbalance.reuse_histogram import reuse_histogram as reuse_histogram

# Failures and goodput
from ._failures.cause_counts import cause_counts as cause_counts
from ._failures.flight_dumps.reader import flight_recorder as flight_recorder
from ._failures.formats.failure_table import failure_table as failure_table
from ._failures.reader import failures as failures

# Fault injection
from ._pvf.exhaustive import exhaustive_injections as exhaustive_injections
from ._pvf.reader import injections as injections
from ._pvf.records import injection_records as injection_records

# Power and energy
from ._power.reader import power as power
from ._power.rollup import power_rollup as power_rollup
from ._power.sweeps import power_sweeps as power_sweeps

# The fleet as a whole
from ._fleet.reader import bundle as bundle
from ._fleet.job_log import job_log as job_log
from ._fleet.reader import fleet as fleet

# Communication
from ._communication.embedding_outputs import embedding_outputs as embedding_outputs
from ._communication.regions import (
    local_training_losses as local_training_losses,
    regions as regions,
)

# All domains
from .kinds import by_kind as by_kind
from .missing_data import missing as missing
from .quality_report import quality as quality
from .writing import write as write
