"""Exit codes as a real sacct printed them."""

from workbench import load

# As sacct -P of Slurm 22.05.8 printed jobs whose script ran `exit CODE`, killed itself, or did so
# in a step of srun; findings/sacct_subtracts_128_from_exit_codes.sh runs them.
RECORDED = """\
JobName|JobID|State|ExitCode|DerivedExitCode
exit0|1|COMPLETED|0:0|0:0
exit127|3|FAILED|127:0|0:0
exit128|4|FAILED|0:0|0:0
exit137|5|FAILED|9:0|0:0
exit200|6|FAILED|72:0|0:0
exit255|7|FAILED|127:0|0:0
killed|8|FAILED|0:9|0:0
batch|8.batch|CANCELLED|0:9|
step9|10|FAILED|9:0|9:0
sh|10.0|FAILED|9:0|
step137|11|FAILED|9:0|137:0
sh|11.0|FAILED|9:0|
step200|12|FAILED|72:0|200:0
sh|12.0|FAILED|72:0|
stepkilled|13|FAILED|9:0|0:9
sh|13.0|CANCELLED|0:9|
"""
TRUE_CODES = {
    "3": "127 or 255", "4": "128", "5": "9 or 137 (killed by signal 9)", "6": "72 or 200", "7": "127 or 255",
    "8": "killed by signal 9", "10": "9", "11": "137 (killed by signal 9)", "12": "200",
    "13": "137 (killed by signal 9)",
}  # fmt: skip


def test_what_a_real_slurm_printed_names_the_true_code_and_no_other_where_a_step_tells(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(RECORDED)
    failures = load.failures(path, tz="UTC", progress=False).failures
    codes = failures["cause"].str.extract(
        r"job failed(?: with exit code|,) (.*?)(?:, which sacct prints alike)?$"
    )[0]
    assert dict(zip(failures["job"], codes, strict=True)) == TRUE_CODES
