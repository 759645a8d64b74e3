#!/usr/bin/python3
"""Weft against NumPy and PyTorch, through `weft eval`: judge_test.py WEFT DEVICE [SUBJECT...].

A subject is a module (traps) or a function of one (traps.numbers). Prints what differs, and the number of comparisons.
"""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
if os.environ.get("WEFT_TEST_JUDGES"):
    sys.path.append(os.environ["WEFT_TEST_JUDGES"])

import blocks
import composites
import dtypes
import elementwise
import files
import opinfo
import products
import reductions
import rows
import traps
import torch
from door import Judge

if driver := os.environ.get("WEFT_TEST_DRIVER"):  # lavapipe, swiftshader
    os.environ["VK_ICD_FILENAMES"] = os.environ[f"WEFT_TEST_ICD_{driver.upper()}"]

SHOWN = 20  # failures of a subject
MODULES = [dtypes, elementwise, reductions, products, composites, traps, opinfo, rows, files, blocks]


def main(weft, device, *wanted):
    judge = Judge(str(pathlib.Path(weft).resolve()), device)
    torch.set_num_threads(1)
    for module in MODULES:
        long_subjects = getattr(module, "LONG_SUBJECTS", [])  # only by their own names
        for subject in [*module.SUBJECTS, *long_subjects]:
            title = f"{module.__name__}.{subject.__name__}"
            if subject in long_subjects and title not in wanted:
                continue
            if wanted and title not in wanted and module.__name__ not in wanted:
                continue
            before, failed, start = judge.comparisons, len(judge.failures), time.monotonic()
            subject(judge)
            print(f"{title:<32} {judge.comparisons - before:>5} comparisons  {len(judge.failures) - failed:>4} failures  {time.monotonic() - start:6.1f} s", flush=True)
            new = judge.failures[failed:]
            for failure in new[:SHOWN]:
                print(f"  {failure}", flush=True)
            if len(new) > SHOWN:
                print(f"  ... and {len(new) - SHOWN} more", flush=True)
    print(f"{judge.comparisons} comparisons on {device}, {len(judge.failures)} failures")
    return 1 if judge.failures or not judge.comparisons else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
