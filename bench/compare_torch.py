#!/usr/bin/env python3
"""Runs a Weft benchmark and its PyTorch peer in turns on the same processors and prints the ratios.

usage: compare_torch.py FOLDER [train_step|elementwise|eager|order|states] [DEVICE [PRESET]] [--rounds N]

FOLDER holds the bench_ programs. The peer runs under the Python named by WEFT_TORCH_PYTHON (else /usr/bin/python3), with
as many threads as this process may use processors. The fastest of all rounds counts for each side, beside the mean.
"""
import argparse
import os
import re
import subprocess
import sys

import figures

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command):
    environment = dict(os.environ, OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))))
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def train_step(arguments, python):
    where = [arguments.device, arguments.preset, "5"]
    peer = "cuda" if arguments.device.startswith("webgpu") else "cpu"
    line = re.compile(r"([\d.]+) ms a step \(best ([\d.]+)\).*peak memory (\d+) MB")
    ours, theirs, name = [], [], ""
    for _ in range(arguments.rounds):
        ours.append([float(x) for x in line.search(run([f"{arguments.folder}/bench_train_step", *where])).groups()])
        text = run([*python, f"{HERE}/torch_train_step.py", peer, *where[1:]])
        name = text.split(" cpu ")[0].split(" cuda ")[0]
        theirs.append([float(x) for x in line.search(text).groups()])
    for number, what in enumerate(("mean ms", "best ms", "peak MB")):
        mine, other = min(row[number] for row in ours), min(row[number] for row in theirs)
        print(f"training step {arguments.preset}, {arguments.device}: {what:8} Weft {mine:9.3f}  {name} {other:9.3f}  "
              f"ratio {other / mine:.2f}")
        if number != 0:
            figures.keep(group="training step", work=f"preset {arguments.preset}, {what.replace(what.split()[-1], '').strip()}",
                           unit=what.split()[-1], weft=mine, peer=name, of_peer=other)


def states(arguments, python):
    prompt, count = 512, 32
    for model in ("mamba-130m", "mamba2-130m"):
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            text = run([f"{arguments.folder}/bench_llm", model, "cpu", str(prompt), str(count)])
            folder = re.search(r"random weights in (\S+)", text)[1]
            ours.append((float(re.search(r"prefill .*?: ([\d.]+) ms", text)[1]), float(re.search(r"decode .*?: ([\d.]+) ms", text)[1])))
            other = re.search(r"^(PyTorch.*?): ([\d.]+) ms prompt, ([\d.]+) ms a token", run([*python, f"{HERE}/torch_states.py", folder, str(prompt), str(count)]), re.M)
            theirs.append((float(other[2]), float(other[3])))
        for number, work in enumerate((f"prompt of {prompt} tokens", f"token after {prompt}")):
            mine, peer = min(row[number] for row in ours), min(row[number] for row in theirs)
            print(f"{model}, {work}: Weft {mine:.2f} ms, {other[1]} {peer:.2f} ms (ratio {peer / mine:.1f})")
            figures.keep(group="models with states", work=f"{model}, {work}", unit="ms", weft=mine, peer=other[1], of_peer=peer)


def elementwise(arguments, python):
    ours, copies, theirs, name = [], [], [], ""
    for _ in range(arguments.rounds):
        mine = re.search(r"six elementwise ops.*?([\d.]+) ms.*memcpy ([\d.]+) ms", run([f"{arguments.folder}/bench_elementwise", "chain"]))
        ours.append(float(mine[1]))
        copies.append(float(mine[2]))
        other = re.search(r"^(.*?): six elementwise ops, 16 M ([\d.]+) ms", run([*python, f"{HERE}/torch_elementwise.py"]))
        name = other[1]
        theirs.append(float(other[2]))
    print(f"six elementwise ops over 16 M floats: Weft {min(ours):.2f} ms, memcpy {min(copies):.2f} ms "
          f"(ratio {min(copies) / min(ours):.2f}), {name} {min(theirs):.2f} ms (ratio {min(theirs) / min(ours):.1f})")
    work = "six elementwise ops over 16 M floats"
    figures.keep(group="elementwise chains", work=work, unit="ms", weft=min(ours), peer=name, of_peer=min(theirs))
    figures.keep(group="elementwise chains", work=work, unit="ms", weft=min(ours), peer="one memcpy", of_peer=min(copies))


def eager(arguments, python):
    line = re.compile(r"^(.*): ([\d.]+) us$", re.MULTILINE)
    ours, theirs, name = {}, {}, ""
    for _ in range(arguments.rounds):
        for what, value in line.findall(run([f"{arguments.folder}/bench_eager"])):
            ours[what] = min(float(value), ours.get(what, float("inf")))
        text = run([*python, f"{HERE}/torch_eager.py"])
        name = text.split("\n")[0]
        for what, value in line.findall(text):
            theirs[what] = min(float(value), theirs.get(what, float("inf")))
    for what, mine in ours.items():
        other = f"{name} {theirs[what]:10.2f} us  ratio {theirs[what] / mine:.2f}" if what in theirs else ""
        print(f"{what:40} Weft {mine:10.2f} us  {other}")
        peer = {"peer": name, "of_peer": theirs[what]} if what in theirs else {}
        figures.keep(group="eager code, one thread", work=what, unit="us", weft=mine, **peer)


def order(arguments, python):
    line = re.compile(r"^(.*): ([\d.]+) ms$", re.MULTILINE)
    ours, peers = {}, {}
    for _ in range(arguments.rounds):
        for what, value in line.findall(run([f"{arguments.folder}/bench_order", arguments.device])):
            ours[what] = min(float(value), ours.get(what, float("inf")))
        name = ""
        for text in run([*python, f"{HERE}/torch_order.py", "cuda" if arguments.device.startswith("webgpu") else "cpu"]).splitlines():
            found = line.match(text)
            if not found:
                name = text
                continue
            times = peers.setdefault(name, {})
            times[found[1]] = min(float(found[2]), times.get(found[1], float("inf")))
    for what, mine in ours.items():
        others = "".join(f"  {name} {times[what]:9.2f} ms (ratio {times[what] / mine:.2f})" for name, times in peers.items() if what in times)
        print(f"{what:32} Weft {mine:9.2f} ms{others}")
        for name, times in peers.items():
            if what in times:
                figures.keep(group="sorting and scans of floats", work=what, unit="ms", weft=mine, peer=name, of_peer=times[what])


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder")
parser.add_argument("what", nargs="?", choices=["train_step", "elementwise", "eager", "order", "states"], default="train_step")
parser.add_argument("device", nargs="?", default="cpu")
parser.add_argument("preset", nargs="?", default="small")
parser.add_argument("--rounds", type=int, default=3)
options = parser.parse_args()
interpreter = [os.environ.get("WEFT_TORCH_PYTHON", "/usr/bin/python3")]
if subprocess.run([*interpreter, "-c", "import torch"], capture_output=True).returncode:
    sys.exit(f"{interpreter[0]} has no PyTorch: install python3-torch, or name another Python with WEFT_TORCH_PYTHON")
{"train_step": train_step, "elementwise": elementwise, "eager": eager, "order": order, "states": states}[options.what](options, interpreter)
