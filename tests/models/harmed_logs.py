"""Random damage of the files of a partition."""


def flip(path, chance):
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def harm(chance, directory):
    """Flip bits, cut or lengthen files, put the index of another segment in place of one's own."""
    logs = sorted(directory.glob("*.log"))
    for _ in range(chance.choice((0, 0, 1, 3))):
        flip(chance.choice(logs), chance)
    if chance.random() < 0.2:
        path = chance.choice(logs)
        data = path.read_bytes()
        path.write_bytes(data[: chance.randrange(len(data) + 1)])
    if chance.random() < 0.2:
        path = chance.choice(logs)
        path.write_bytes(path.read_bytes() + chance.choice((bytes(100), b"junk" * 40)))
    indexes = sorted(directory.glob("*.index"))
    if indexes and chance.random() < 0.3:
        chance.choice(indexes).write_bytes(chance.choice(indexes).read_bytes())
    if indexes and chance.random() < 0.3:
        flip(chance.choice(indexes), chance)
