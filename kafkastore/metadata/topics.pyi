from typing import Any

NO_LEADER: int

class PartitionRegistration:
    replicas: tuple[int, ...]
    directories: tuple[str | None, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    def __init__(
        self,
        replicas: tuple[int, ...] = ...,
        directories: tuple[str | None, ...] = ...,
        isr: tuple[int, ...] = ...,
        removing_replicas: tuple[int, ...] = ...,
        adding_replicas: tuple[int, ...] = ...,
        leader: int = ...,
        leader_recovery_state: int = ...,
        leader_epoch: int = ...,
        partition_epoch: int = ...,
        elr: tuple[int, ...] = ...,
        last_known_elr: tuple[int, ...] = ...,
    ) -> None: ...
    def _asdict(self) -> dict[str, Any]: ...

class Topic:
    name: str
    topic_id: str | None
    partitions: dict[int, PartitionRegistration]
    def __init__(self, name: str, topic_id: str | None) -> None: ...

def create_partition(topics_by_id: dict[str, Topic], record: dict[str, Any]) -> None: ...
def change_partition(
    topics_by_id: dict[str, Topic],
    shared: dict[tuple[Any, ...], tuple[Any, ...]],
    record: dict[str, Any],
) -> None: ...
