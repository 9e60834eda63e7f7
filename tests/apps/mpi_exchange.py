"""A program of MPI, run by test_stacks.py on every node: collectives of all sizes, many tags under
way at once, one-sided puts and a shared counter. Every byte is compared."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
me, ranks = world.rank, world.size


def numbers(rank: int, count: int) -> np.ndarray:
    return rank * 1_000_003 + np.arange(count)


for count in (1, 16, 256, 4096, 65536):
    mine, got = numbers(me, count * ranks), np.empty(count * ranks, int)
    world.Alltoall(mine, got)
    parts = [numbers(rank, count * ranks)[count * me : count * (me + 1)] for rank in range(ranks)]
    assert (got == np.concatenate(parts)).all()
    world.Allgather(mine[:count], got)
    assert (got == np.concatenate([numbers(rank, count) for rank in range(ranks)])).all()
    world.Allreduce(mine, got, MPI.SUM)
    assert (got == sum(numbers(rank, count * ranks) for rank in range(ranks))).all()

TAGS = 128
before, behind = (me - 1) % ranks, (me + 1) % ranks
sent, came = numbers(me, TAGS), np.empty(TAGS, int)
requests = [world.Isend(sent[tag : tag + 1], behind, tag) for tag in range(TAGS)]
requests += [world.Irecv(came[tag : tag + 1], before, tag) for tag in reversed(range(TAGS))]
MPI.Request.Waitall(requests)
assert (came == numbers(before, TAGS)).all()

ROOM, TURNS = 1024, 20
window = MPI.Win.Allocate(ROOM * ranks * 8, 8, comm=world)
memory = np.frombuffer(window.tomemory(), int)
memory[:] = 0
window.Fence()
window.Put(numbers(me, ROOM), behind, [ROOM * me, ROOM, MPI.LONG])
window.Fence()
assert (memory[ROOM * before : ROOM * (before + 1)] == numbers(before, ROOM)).all()
memory[:] = 0
window.Fence()
window.Lock_all()
one, old = np.ones(1, int), np.empty(1, int)
for _ in range(TURNS):
    window.Fetch_and_op(one, old, 0)
    window.Flush(0)
window.Unlock_all()
world.Barrier()
if me == 0:
    window.Lock(0)
    assert memory[0] == TURNS * ranks
    window.Unlock(0)
    print("all as it was sent")
window.Free()
