"""The phrases that generated incident tickets are made of; invented, no real ticket was used."""

from __future__ import annotations

#: Cause -> what somebody finds who looks in the right place.
EVIDENCE = {
    "network": (
        "link flap on port {n}",
        "packet loss on the leaf switch",
        "infiniband symbol errors climbing",
        "optic {n} lost light",
        "nic reports carrier down",
        "pause frames flood the fabric",
        "cable reseated and bandwidth returned",
        "route to the spine is gone",
        "nccl ring broke between two racks",
        "mtu mismatch on bond",
    ),
    "gpu": (
        "xid {n} on device {n}",
        "uncorrectable ecc in hbm",
        "gpu fell off the bus",
        "nvlink replay errors",
        "row remapping failed",
        "device {n} runs slow in every kernel",
        "cuda illegal access only on this board",
        "page retirement pending",
        "sxm board swapped and job runs",
        "nvswitch fatal error",
    ),
    "storage": (
        "checkpoint write takes {n} minutes",
        "nfs mount stale",
        "lustre ost {n} unreachable",
        "disk full on scratch",
        "nvme media errors",
        "dataset read throttled",
        "inode quota exceeded",
        "metadata server overloaded",
        "object store returns errors",
        "raid rebuild in progress",
    ),
    "power": (
        "psu {n} failed",
        "breaker tripped in row {n}",
        "rack lost feed b",
        "power cap engaged",
        "thermal throttle from hot inlet",
        "fan {n} stopped",
        "coolant flow low",
        "bmc logged brownout",
        "pdu overload alarm",
        "leak sensor wet",
    ),
    "software": (
        "stack trace in data loader",
        "python exception in optimizer",
        "library version changed yesterday",
        "assert in collective wrapper",
        "wrong shape after config merge",
        "container image lacks package",
        "driver and toolkit mismatch",
        "segfault in custom kernel",
        "bug fixed by reverting commit",
        "nan since new learning rate",
    ),
    "scheduler": (
        "job preempted by higher priority",
        "slurm time limit reached",
        "node drained by mistake",
        "allocation spans the wrong partition",
        "cgroup killed the rank",
        "requeue loop in controller",
        "pod evicted for memory request",
        "reservation ended early",
        "quota of account used up",
        "prolog script refuses node",
    ),
}

#: What anybody sees first -> how often for each cause, in the order of EVIDENCE.
SYMPTOMS = {
    "job hangs in all reduce": (6, 3, 1, 1, 2, 1),
    "training is slow since noon": (3, 3, 3, 3, 1, 1),
    "rank {n} died without a word": (1, 4, 1, 2, 2, 4),
    "node {n} not reachable": (4, 1, 1, 5, 1, 2),
    "loss became nan": (1, 4, 1, 1, 6, 1),
    "checkpoint did not finish": (1, 1, 7, 1, 2, 2),
    "run stopped at step {n}": (2, 3, 2, 2, 3, 4),
    "throughput dropped by half": (4, 3, 3, 4, 1, 1),
    "job does not start": (1, 1, 2, 1, 4, 6),
    "collective timeout": (6, 3, 1, 1, 2, 1),
}

#: Around the evidence of another cause: it was not that.
DENIALS = (
    ("ruled out", ""),
    ("no sign of", ""),
    ("it is not", ""),
    ("we first suspected", "but no"),
    ("last month we had", "that is solved"),
    ("", "was a false alarm"),
    ("", "was on another cluster"),
    ("checked for", "and found nothing"),
)

#: Around the evidence of the cause.
CLAIMS = (
    ("", ""),
    ("", ""),
    ("found", ""),
    ("logs show", ""),
    ("we see", ""),
    ("most likely", ""),
    ("again", ""),
    ("operator says", ""),
)

#: What tells nothing.
CHATTER = (
    "please look",
    "opened by oncall",
    "seen {n} times today",
    "job of {n} nodes",
    "started after the weekend",
    "user is waiting",
    "same rack as ticket {n}",
    "not urgent",
    "high priority",
    "will retry",
    "no change from our side",
)
