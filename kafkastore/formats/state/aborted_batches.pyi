from typing import Any

import numpy as np
from numpy.typing import NDArray

class AbortedBatches:
    def __init__(self, aborted_txns: NDArray[np.void]) -> None: ...
    def of(self, headers: NDArray[Any]) -> NDArray[np.bool_]: ...
