"""Build the compiled modules where there is a C compiler, and choose a wheel's data.

Without a compiler Python reads traces, and numpy does what the others do.

Hatchling runs this at installation; ``python hatch_build.py`` builds beside the source by hand.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = (
    "workbench/load/_traces/kineto/_scanner.c",
    "workbench/analyze/_lib/_sweep.c",
    "workbench/analyze/_perfmodel/timing/_longest_path.c",
)
# Only injected faults, a check of their statistics and a training made anew need these: they stay
# in the source archive, from which workbench.datasets gets them.
NOT_IN_WHEELS = {"local-training-text", "pvf-models", "pvf-truth"}
GENERATORS = "make"  # what makes the sets, in data/ beside them
FLAGS = ["-std=c11", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]


def built(source: str) -> str:
    """Return the path of what is built from a source."""
    return source.replace(".c", ".abi3.so")


def build(source: str, target: Path, flags: tuple[str, ...] = ()) -> str:
    """Compile ``source`` to ``target``; '' on success, else why there is nothing."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    tried = dict.fromkeys([compiler, "cc"])
    linking = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    digest = hashlib.sha256((HERE / source).read_bytes()).hexdigest()
    flags = (*flags, f'-DSOURCE_DIGEST="{digest}"')
    reason = "no compiler"
    for words in map(shlex.split, tried):
        # Written whole, then renamed: a process may have the old one open.
        unfinished = target.with_name(f"{target.name}.{os.getpid()}")
        includes = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
        command = [*words, *FLAGS, *flags, *includes, str(HERE / source), *linking]
        try:
            done = subprocess.run(
                [*command, "-o", str(unfinished)], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                unfinished.replace(target)
                return ""
            reason = done.stderr.strip() or f"{words[0]} exits with {done.returncode}"
        except OSError as error:
            reason = str(error)
        finally:
            unfinished.unlink(missing_ok=True)
    return reason


if __name__ == "__main__":
    for name in SOURCES:
        if why_not := build(name, HERE / built(name), tuple(sys.argv[1:])):
            sys.exit(f"{name} is not built: {why_not}")
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class CompiledHook(BuildHookInterface[Any]):
        """Adds compiled modules and data to a wheel; an editable one has them beside the source."""

        _scratch: str | None = None

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Build; a wheel without compiled modules stays a wheel for every platform."""
            if version != "editable":
                for path in [*(HERE / "data").iterdir(), *(HERE / "docs").glob("*.md")]:
                    place = {"data": "_bundled", "docs": "_notebooks/docs"}[path.parent.name]
                    if path.name not in {GENERATORS, *NOT_IN_WHEELS}:
                        build_data["force_include"][str(path)] = f"workbench/{place}/{path.name}"
                self._scratch = tempfile.mkdtemp()
            for name in SOURCES:
                target = HERE / built(name)
                if self._scratch is not None:
                    target = Path(self._scratch, target.name)
                if why_not := build(name, target):
                    self.app.display_warning(f"{name} is done by Python alone: {why_not[-500:]}")
                elif version != "editable":
                    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                    build_data["tag"] = f"cp311-abi3-{platform}"
                    build_data["pure_python"] = False
                    build_data["force_include"][str(target)] = built(name)

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove what only the wheel needed."""
            del version, build_data, artifact_path
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
