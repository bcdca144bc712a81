"""What a power limit costs and buys: curves, knees, and how many GPUs a site can feed."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_TRUST = (
    "how far the number can be trusted: printed (in the source), reported (by somebody else, of "
    "the source), calculated (from numbers of the other two)"
)
_GPU = "product, as the sweep or the source names it"
_JOB = "what ran: the network, or the product as a whole"
_CONFIGURATION = "setting of the job; 'median of n' where several are one curve"

POWER_CURVE = Table(
    "power_curve",
    "One row per configuration and power limit, in order of the limit; ratios are against the "
    "largest limit of the configuration.",
    {
        "gpu": Column("str", _GPU),
        "job": Column("str", _JOB),
        "configuration": Column("str", _CONFIGURATION),
        "configuration_count": Column("int64", "configurations behind the row", lower=1),
        "limit_w": Column("float64", "power limit of one GPU", lower=0),
        "power_w": Column("float64", "mean power of one GPU", lower=0, nullable=True),
        "speed_ratio": Column("float64", "speed against the largest limit", lower=0),
        "energy_ratio": Column(
            "float64", "energy of the same work against the largest limit", lower=0, nullable=True
        ),
        "saving_ratio": Column("float64", "1 - energy_ratio", upper=1, nullable=True),
        "basis": Column("str", "measured, published, derived, interpolated or extrapolated"),
        "is_extrapolated": Column("bool", "outside the limits that were measured or published"),
        "doubt": Column("str", "why the number is in doubt; empty if it is not"),
        "source": Column("str", "file, or publication"),
    },
)

POWER_KNEES = Table(
    "power_knees",
    "One row per GPU and job: limits that stand out on its curve; medians over configurations.",
    {
        "gpu": Column("str", _GPU),
        "job": Column("str", _JOB),
        "configuration_count": Column("int64", "curves behind the row", lower=1),
        "largest_limit_w": Column("float64", "largest limit", lower=0),
        "least_energy_limit_w": Column(
            "float64", "limit at which the work costs least energy", lower=0, nullable=True
        ),
        "saving_ratio": Column(
            "float64", "energy saved there against the largest limit", upper=1, nullable=True
        ),
        "speed_loss_ratio": Column(
            "float64", "speed lost there; below 0 if it was faster", upper=1, nullable=True
        ),
        "time_increase_ratio": Column(
            "float64", "time added there, which is more than the speed lost", nullable=True
        ),
        "kept_speed_share": Column("float64", "speed that had to be kept", lower=0, upper=1),
        "kept_speed_limit_w": Column("float64", "smallest limit that keeps it", lower=0),
        "edp_limit_w": Column("float64", "limit of least energy x time", lower=0, nullable=True),
        "ed2p_limit_w": Column(
            "float64", "limit of least energy x time x time", lower=0, nullable=True
        ),
        "knee_limit_w": Column(
            "float64", "limit where the curve bends most", lower=0, nullable=True
        ),
        "per_watt_limit_w": Column("float64", "limit of most speed per watt of limit", lower=0),
        "doubt": Column("str", "why the row is in doubt; empty if it is not"),
    },
)

PROVISIONING = Table(
    "provisioning",
    "One row per curve and power limit: how many GPUs a site feeds, and what they do together.",
    {
        "gpu": Column("str", _GPU),
        "job": Column("str", _JOB),
        "configuration": Column("str", _CONFIGURATION),
        "limit_w": Column("float64", "power limit of one GPU", lower=0),
        "gpu_count": Column("int64", "GPUs that the site feeds at that limit", lower=0),
        "speed_ratio": Column("float64", "speed of one GPU against the largest limit", lower=0),
        "throughput_ratio": Column(
            "float64", "of all GPUs, in GPUs that run at the largest limit", lower=0
        ),
        "reference_limit_w": Column("float64", "limit that is compared with", lower=0),
        "gain_ratio": Column(
            "float64", "throughput / throughput at the reference limit - 1", lower=-1
        ),
        "site_w": Column("float64", "power of the site if every GPU draws its limit", lower=0),
        "energy_ratio": Column(
            "float64",
            "site energy of the same work / at the reference limit",
            lower=0,
            nullable=True,
        ),
        "is_best": Column("bool", "whether no other row of the curve has more throughput"),
        "basis": Column("str", "measured, published, derived, interpolated or extrapolated"),
        "is_extrapolated": Column("bool", "outside the limits that were measured or published"),
        "doubt": Column("str", "why the number is in doubt; empty if it is not"),
        "source": Column("str", "file, or publication"),
    },
)

PUBLISHED_GAINS = Table(
    "published_gains",
    "One row per throughput gain that others published for a lower limit at the same site power.",
    {
        "gpu": Column("str", _GPU),
        "limit_w": Column("float64", "power limit of one GPU", lower=0),
        "reference_limit_w": Column("float64", "limit that was compared with", lower=0),
        "gain_ratio": Column("float64", "gain in throughput; 0.09 is 9 % more", lower=-1),
        "low_gain_ratio": Column("float64", "least gain that rounds to what was printed", lower=-1),
        "high_gain_ratio": Column("float64", "most gain that rounds to what was printed", lower=-1),
        "trust": Column("str", _TRUST),
        "source": Column("str", "publication, and who reported it"),
    },
)

PROVISIONING_FACTS = Table(
    "provisioning_facts",
    "One row per published number about sites and their power.",
    {
        "quantity": Column("str", "what it is"),
        "value": Column("float64", "number, in the unit of the row"),
        "unit": Column("str", "W, 1 (a count or ratio)"),
        "trust": Column("str", _TRUST),
        "source": Column("str", "publication, and who reported it"),
    },
)
