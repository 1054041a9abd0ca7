"""Assemble the container image's root file system out of Debian's packages and a wheel.

usage:  image.py FOLDER WHEELS [--architecture amd64|arm64] [--extras NAME,...]

The Dockerfile and `make image` run this. It needs Debian 12's apt and Python 3.11 with pip, and
unpacks without running anything of the image, so one machine makes the images of both processors.
docs/containers.md says what is in it, docs/design/packaging.md why.
"""
from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
#: Processors, as Debian and Docker call them, and as wheels do.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
PYTHON = "3.11"
PACKAGES = [
    "base-files", "busybox", "coreutils", "gcc-12-base", "libbz2-1.0", "libc6", "libcrypt1",
    "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libpython3.11-minimal",
    "libpython3.11-stdlib", "libssl3", "libstdc++6", "libuuid1", "python3.11-minimal", "tzdata",
    "zlib1g",
]
#: Of coreutils only what starts `kafkastore` without Python's traceback at Ctrl-C.
COREUTILS = ("./usr/bin/env", "./usr/share/doc/coreutils/copyright")
#: Paths in Debian's packages that are left out.
UNNEEDED = (
    "./usr/share/man/*", "./usr/share/lintian/*", "./usr/share/locale/*", "./usr/share/info/*",
    "./usr/share/zoneinfo/right/*", "./usr/share/zoneinfo/posix/*", "./usr/lib/*/gconv/*",
    "./var/local",  # its group may write there
)
#: Modules of Python whose libraries are left out: terminals, databases and NIS.
WITHOUT_LIBRARY = ("_curses", "_curses_panel", "_dbm", "_sqlite3", "nis", "readline")
#: What BusyBox does for a look around: `kubectl exec POD -- ls -ln /kafka-logs`.
APPLETS = (
    "cat", "df", "du", "find", "grep", "head", "id", "ls", "more", "ps", "readlink", "sh", "sleep",
    "stat", "tail", "wc",
)
#: Without --extras: passwords and metrics of `serve`, which take 2 MB, and no pyarrow (168 MB).
SMALL = ("prometheus-client", "scramp")
#: Platform tags of wheels that run on Debian 12; the last is that of a wheel built there.
TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "linux")
#: Modules of which no command needs bytecode.
NOT_COMPILED = r"/(lib2to3|pydoc_data|unittest|distutils|f2py|pygments/(styles|formatters))/"
USER = 65532


def run(*command: str | Path) -> str:
    """Return what a program prints; on failure end with all of its output."""
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{' '.join(map(str, command))}: exit code {done.returncode}")
    return done.stdout


def missing_here() -> str | None:
    """Name what this machine lacks to make the image; None if nothing."""
    if sys.version_info[:2] != (3, 11):
        return f"the image has Python {PYTHON}, so it takes Python {PYTHON} to compile for it"
    release = Path("/etc/os-release")
    if not SOURCES.exists() or "VERSION_CODENAME=bookworm" not in release.read_text().split():
        return "the image consists of Debian 12's packages, and this is not Debian 12"
    return None


def architecture_here() -> str:
    """Return this machine's processor, as Debian calls it."""
    names = {machine: name for name, machine in MACHINES.items()}
    return names.get(platform.machine(), "amd64")


def find_wheel(given: Path, machine: str) -> Path:
    """Return the wheel for the image's Python and processor."""
    if given.is_file():
        return given
    found = sorted(given.glob(f"kafkastore-*-cp311-cp311-*linux_2_28_{machine}.whl"))
    if len(found) != 1:
        sys.exit(
            f"{given} has {len(found)} wheels for Python {PYTHON} and {machine}, and the image "
            f"needs one: make wheels PYTHON=python{PYTHON} PLATFORM=manylinux_2_28_{machine}"
        )
    return found[0]


def requirements(wheel: Path) -> list[str]:
    """Return the packages of SMALL, with the bounds that the wheel states."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = fnmatch.filter(archive.namelist(), "*.dist-info/METADATA")
        metadata = BytesParser().parsebytes(archive.read(name))
    stated = (each.partition(";")[0].strip() for each in metadata.get_all("Requires-Dist", []))
    return sorted({each for each in stated if re.split("[<>=]", each)[0].strip() in SMALL})


def unpack_debian(root: Path, architecture: str, work: Path) -> None:
    """Download packages with a state of apt of their own, and unpack them."""
    for name in ("lists/partial", "cache/archives/partial", "packages"):
        (work / name).mkdir(parents=True)
    options = [
        f"APT::Architecture={architecture}", f"APT::Architectures={architecture}",
        "APT::Sandbox::User=root", "APT::Install-Recommends=false", "Acquire::Languages=none",
        f"Dir::State::lists={work}/lists", "Dir::State::status=/dev/null",
        f"Dir::Cache={work}/cache", f"Dir::Etc::sourcelist={SOURCES}", "Dir::Etc::sourceparts=-",
    ]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    run(*apt, "update")
    run("sh", "-c", 'cd "$0" && exec "$@"', work / "packages", *apt, "download", *PACKAGES)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    states = root / "var/lib/dpkg/status.d"  # there scanners look for packages
    states.mkdir(parents=True)
    for package in sorted((work / "packages").iterdir()):
        name = run("dpkg-deb", "--field", package, "Package").strip()
        tar = work / "package.tar"
        run("sh", "-c", 'dpkg-deb --fsys-tarfile "$0" >"$1"', package, tar)
        run(
            *("tar", "-x", "-f", tar, "-C", root, "--keep-directory-symlink", "--no-same-owner"),
            *(f"--exclude={pattern}" for pattern in UNNEEDED), "--wildcards",
            *(COREUTILS if name == "coreutils" else ()),
        )
        (states / name).write_text(run("dpkg-deb", "--field", package))
    for name in APPLETS:
        (root / "usr/bin" / name).symlink_to("busybox")
    for page in (root / "usr/share/doc").rglob("*"):
        if page.name != "copyright" and not page.is_dir():
            page.unlink()


def install_wheel(root: Path, wheel: Path, machine: str, extras: str) -> None:
    """Install the wheel and what it needs, as pip does on a machine of that processor."""
    site = root / f"usr/local/lib/python{PYTHON}/dist-packages"
    packages = [f"{wheel}[{extras}]"] if extras else [str(wheel), *requirements(wheel)]
    tag = f"cp{PYTHON.replace('.', '')}"
    run(
        *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
        *("--root-user-action=ignore", "--no-compile", "--only-binary", ":all:", "--target", site),
        *(f"--platform={each}_{machine}" for each in TAGS),
        *(f"--python-version={PYTHON}", "--implementation=cp", f"--abi={tag}", *packages),
    )
    scripts = root / "usr/local/bin"
    scripts.mkdir(parents=True)
    for name in ("kafkastore", "kafkastore-python"):
        script = scripts / name
        shutil.move(site / "bin" / name, script)
        text = re.sub(r"\A#!.*python.*", f"#!/usr/bin/python{PYTHON}", script.read_text())
        script.write_text(text)
    shutil.rmtree(site / "bin")
    for folder in [each for each in site.glob("numpy/**/tests") if each.is_dir()]:
        shutil.rmtree(folder)
    for module in site.glob("zstandard/_cffi.*"):  # PyPy's
        module.unlink()
    for suffix in ("a", "h", "pxd", "pyi"):  # for compilers and type checkers
        for path in site.rglob(f"*.{suffix}"):
            path.unlink()
    for lexer in site.glob("pygments/lexers/[a-z]*.py"):  # nothing highlights sources
        lexer.unlink()


def finish(root: Path) -> None:
    """Add the user and Python's bytecode, and remove what does not work."""
    for name in WITHOUT_LIBRARY:
        for module in root.glob(f"usr/lib/python{PYTHON}/lib-dynload/{name}.*"):
            module.unlink()
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/:/bin/sh\n"
        f"kafkastore:x:{USER}:{USER}:kafkastore:/:/bin/sh\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nkafkastore:x:{USER}:\n")
    for name in ("dev", "kafka-logs", "proc", "sys", "tmp"):  # the rest is mounted there
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    # No file changes later, whatever times a layer gives it.
    run(
        *(sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-x", NOT_COMPILED, "-s", root, "-p", "/", root / "usr/lib", root / "usr/local/lib"),
    )


def size(root: Path) -> int:
    """Return the bytes of all files, as `docker image ls` counts them."""
    files = [path.lstat() for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    return sum(file.st_size for file in files)


def main() -> None:
    """Assemble what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the root file system; must not exist")
    parser.add_argument("wheels", type=Path, help="a wheel, or a folder with one for this image")
    parser.add_argument("--architecture", choices=MACHINES, default=architecture_here())
    parser.add_argument("--extras", default="", help="for example: arrow,serve,remote")
    options = parser.parse_args()
    if lacks := missing_here():
        sys.exit(lacks)
    if options.folder.exists():
        sys.exit(f"{options.folder} exists: name a folder that does not, or remove it")
    machine = MACHINES[options.architecture]
    wheel = find_wheel(options.wheels, machine)
    os.umask(0o022)
    options.folder.mkdir(parents=True)
    root = options.folder.resolve()
    with tempfile.TemporaryDirectory(prefix="kafkastore-image-") as work:
        unpack_debian(root, options.architecture, Path(work))
    install_wheel(root, wheel.resolve(), machine, options.extras)
    finish(root)
    print(f"{options.folder}: {size(root) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
