from collections.abc import Callable

class LineBuffer:
    def __init__(self, write: Callable[[bytes], object]) -> None: ...
