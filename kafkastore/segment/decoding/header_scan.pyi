from typing import Any

from numpy.typing import NDArray

def scan_file(
    descriptor: int, position: int, end: int, memory: memoryview, headers: NDArray[Any]
) -> tuple[int, int, int]: ...
