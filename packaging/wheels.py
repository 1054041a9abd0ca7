"""Build the sdist and all wheels on one Linux machine; the same sources give the same bytes.

usage:  wheels.py FOLDER [--python PROGRAM]... [--platform TAG]...

The compiler is Clang as PyPI's ziglang brings it, for each processor and C library with that
library's symbols; nothing of this machine's compiler or C library gets into a wheel. By default
wheels are built for every Python in PYTHONS that this machine has, and for all PLATFORMS. `make
wheels` runs this in an environment with the packages of pyproject.toml's group `wheels`.
docs/design/packaging.md explains the decisions.
"""
from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
# What tools leave in a checkout; nothing of it belongs in an sdist.
LEFTOVERS = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist",
             "*.egg-info", "*.so", "kafkastore-run", "spark-warehouse", "metastore_db")


@dataclass(frozen=True)
class Platform:
    """A platform tag, and how compilers and Python's file names call the same."""

    tag: str
    machine: str
    libc: str
    zig_target: str
    link_options: tuple[str, ...]

    def suffix(self, python_tag: str) -> str:
        """Return the end of the file names of compiled modules."""
        version = python_tag.removeprefix("cp")
        return f".cpython-{version}-{self.machine}-linux-{self.libc}.so"


# musl's functions are those of the process: each distribution calls the library otherwise.
PLATFORMS = {
    f"{tag}_{machine}": Platform(
        f"{tag}_{machine}", machine, libc, f"{machine}-linux-{target}", link_options
    )
    for tag, libc, target, link_options in (
        ("manylinux_2_28", "gnu", "gnu.2.28", ()),
        ("musllinux_1_2", "musl", "musl", ("-dynamic", "-nostdlib")),
    )
    for machine in ELF_MACHINES
}


def run(*command: str | Path, **options: Any) -> str:
    """Return what a program prints; on failure end with all of its output."""
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        **options,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{' '.join(map(str, command))}: exit code {done.returncode}")
    return str(done.stdout)


def source_date() -> str:
    """Return the seconds since 1970 that files in archives get: of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    if (ROOT / ".git").exists():
        return run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    return str(int((ROOT / "pyproject.toml").stat().st_mtime))  # in an sdist: of that commit


def zig() -> list[str]:
    """Return the compiler's command without its options."""
    import ziglang

    return [str(Path(ziglang.__file__).with_name("zig")), "cc"]


def find_python(name: str) -> str | None:
    """Return the path of a Python with headers and venv; None if this machine has none."""
    done = subprocess.run(
        ["sh", ROOT / ".ci/find-python", name],
        env=os.environ | {"CC": "true"},  # it need not look for a compiler
        check=False, capture_output=True, text=True,
    )
    if done.returncode:
        print(f"no wheels for {name}: {done.stderr.strip()}", file=sys.stderr)
        return None
    found = done.stdout.strip()
    header = run(found, "-c", "import sysconfig; print(sysconfig.get_path('include'))").strip()
    if not Path(header, "Python.h").exists():
        print(f"no wheels for {name}: {header} has no Python.h", file=sys.stderr)
        return None
    return found


def make_environment(python: str, folder: Path) -> Path:
    """Create an environment with the packages that compile; return its Python."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    run(python, "-m", "venv", folder)
    made = folder / "bin/python"
    run(made, "-m", "pip", "install", "-q", "--disable-pip-version-check", *groups["compile"])
    link_configuration(made, folder / "configuration")
    return made


def link_configuration(python: Path, folder: Path) -> None:
    """Make a folder that has Debian's pyconfig.h of this machine for every processor."""
    code = "import sysconfig as s; print(s.get_path('include'), s.get_config_var('MULTIARCH'))"
    include, multiarch = map(Path, run(python, "-c", code).split())
    for machine in ELF_MACHINES:
        of_machine = folder / f"{machine}-linux-gnu"
        of_machine.mkdir(parents=True)
        # Leads nowhere on systems that have one pyconfig.h for all.
        (of_machine / include.name).symlink_to(include.parent / multiarch / include.name)


def build_sdist(python: Path, folder: Path, epoch: str) -> Path:
    """Build the sdist: sorted, with one time for all files, and without this machine's users."""
    folder.mkdir()
    # setup.py writes into the folder where it runs, and another build may run in the checkout.
    copy = folder.with_name("checkout")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFTOVERS))
    run(python, "setup.py", "-q", "sdist", "--dist-dir", folder, cwd=copy)
    (sdist,) = folder.glob("*.tar.gz")
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime = int(epoch)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}  # would state the old time again
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", 9, file, int(epoch)) as compressed:
        compressed.write(packed.getvalue())
    return sdist


def build_wheel(
    python: Path, sources: Path, platform: Platform, folder: Path, epoch: str
) -> Path:
    """Compile an unpacked sdist for one Python and one platform."""
    tag = run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").strip()
    built = sources / f"build/{tag}-{platform.tag}"
    headers = python.parents[1] / "configuration"
    compiler = [*zig(), "-target", platform.zig_target, "-I", str(headers)]
    # An x86-64 Clang makes branches of what is written without them, and lookups seven times as
    # slow (docs/design/packaging.md).
    without_branches = ["-mllvm", "-x86-cmov-converter=0"] if platform.machine == "x86_64" else []
    run(
        *(python, "setup.py", "-q", "build", "--build-base", built),
        *("bdist_wheel", "--plat-name", platform.tag, "--dist-dir", built),
        cwd=sources,
        env={
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "SOURCE_DATE_EPOCH": epoch,
            "CC": " ".join([*compiler, *without_branches]),
            "LDSHARED": " ".join([*compiler, "-shared", "-s", *platform.link_options]),
            "SETUPTOOLS_EXT_SUFFIX": platform.suffix(tag),
        },
    )
    (wheel,) = built.glob("*.whl")
    shutil.rmtree(built / "lib", ignore_errors=True)
    return Path(shutil.move(wheel, folder))


def check_wheel(wheel: Path, platform: Platform) -> None:
    """End with a sentence unless the compiled modules are for the platform in the name."""
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.wheel_abi import analyze_wheel_abi

    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        machines = {archive.read(name)[18] for name in modules}
    suffix = platform.suffix(wheel.name.split("-")[2])
    if machines != {ELF_MACHINES[platform.machine]} or not all(
        name.endswith(suffix) for name in modules
    ):
        sys.exit(f"{wheel.name}: compiled for ELF machines {machines}, files {modules}")
    libc = {"gnu": Libc.GLIBC, "musl": Libc.MUSL}[platform.libc]
    found = analyze_wheel_abi(
        libc, Architecture(platform.machine), wheel, frozenset(),
        disable_isa_ext_check=False, allow_graft=False,
    )
    wanted = found.policies.get_policy_by_name(platform.tag)
    if wanted > found.overall_policy:
        sys.exit(
            f"{wheel.name}: auditwheel allows no more than {found.overall_policy.name};"
            f" symbols: {dict(found.versioned_symbols)}"
        )


def main() -> None:
    """Build what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the files go; replaced if it exists")
    parser.add_argument("--python", action="append", help="default: those of 3.11 to 3.14 here")
    parser.add_argument("--platform", action="append", choices=PLATFORMS, help="default: all")
    options = parser.parse_args()
    found = {name: find_python(name) for name in options.python or PYTHONS}
    if not any(found.values()) or (options.python and not all(found.values())):
        sys.exit("not every Python that wheels are asked for is on this machine")

    os.umask(0o022)
    epoch = source_date()
    shutil.rmtree(options.folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="kafkastore-wheels-") as temporary:
        work = Path(temporary)
        pythons = [make_environment(path, work / name) for name, path in found.items() if path]
        sdist = build_sdist(pythons[0], work / "dist", epoch)
        with tarfile.open(sdist) as archive:
            archive.extractall(work / "unpacked", filter="data")
        (sources,) = (work / "unpacked").iterdir()
        for python in pythons:
            for platform in map(PLATFORMS.__getitem__, options.platform or PLATFORMS):
                started = time.monotonic()
                wheel = build_wheel(python, sources, platform, work / "dist", epoch)
                check_wheel(wheel, platform)
                megabytes = wheel.stat().st_size / 1e6
                seconds = time.monotonic() - started
                print(f"{wheel.name}  {megabytes:.2f} MB  {seconds:.0f} s", flush=True)
        shutil.copytree(work / "dist", options.folder)


if __name__ == "__main__":
    main()
