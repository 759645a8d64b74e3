"""Programs as they are written for PyTorch: each runs once as it is and once with every `torch` replaced by `weft`, and gives the same
losses. settle(module) gives the parameters the same first values in both."""
import contextlib
import importlib
import io
import pathlib
import re
import sys
import types
import unittest
import warnings

import numpy as np

try:
    import torch
except Exception:
    torch = None

FOLDER = pathlib.Path(__file__).parent / "programs"


def settle_of(module):
    def settle(net, scale=0.3, seed=0):
        draw = np.random.default_rng(seed)
        with module.no_grad():
            for parameter in net.parameters():
                parameter.copy_(module.from_numpy(draw.normal(0, scale, tuple(parameter.shape)).astype("float32")))
    return settle


def losses_of(name, library):
    text = (FOLDER / f"{name}.py").read_text()
    if library == "weft":
        text = re.sub(r"\btorch\b", "weft", text)
    program = types.ModuleType(f"program_{name}_{library}")  # objects of its classes are pickled by this name
    program.settle = settle_of(importlib.import_module(library))
    sys.modules[program.__name__] = program
    exec(compile(text, f"{name}.py with {library}", "exec"), program.__dict__)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.main()


@unittest.skipIf(torch is None, "no PyTorch")
class Programs(unittest.TestCase):
    def check(self, name):
        theirs, mine = losses_of(name, "torch"), losses_of(name, "weft")
        self.assertGreater(len(theirs), 5)
        np.testing.assert_allclose(mine, theirs, rtol=3e-4, atol=2e-5)


def add(name):
    setattr(Programs, f"test_{name}", lambda self: self.check(name))


for each in sorted(FOLDER.glob("*.py")):
    # torch.func came with PyTorch 2.
    if each.stem != "functional" or (torch is not None and hasattr(torch, "func")):
        add(each.stem)

if __name__ == "__main__":
    unittest.main()
