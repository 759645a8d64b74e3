"""Times of a peer's runs."""
import time

import torch


def best_ms(run, device):
    """Milliseconds of a run: the best of at most 30, for 1.5 seconds."""
    def once():
        run()
        if device == "cuda":
            torch.cuda.synchronize()

    once()
    best, begin = float("inf"), time.perf_counter()
    for i in range(30):
        start = time.perf_counter()
        once()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begin > 1.5 and i >= 2:
            break
    return best * 1e3
