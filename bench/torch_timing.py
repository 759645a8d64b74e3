"""Times of a peer's runs."""
import itertools
import time

import torch


def best_ms(run, device):
    """Milliseconds of a run: the best of those that 1.5 seconds hold, on the CPU of at most 30, as best_ms of peer.hpp."""
    def once():
        run()
        if device == "cuda":
            torch.cuda.synchronize()

    once()
    best, begin = float("inf"), time.perf_counter()
    for i in range(30) if device != "cuda" else itertools.count():
        start = time.perf_counter()
        once()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begin > 1.5 and i >= 2:
            break
    return best * 1e3
