#!/usr/bin/env python3
"""weft kernels: kernels_test.py WEFT [unittest arguments]. What it writes, in every language, and what it refuses."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

WEFT = sys.argv.pop(1)
OK, USAGE, FILE = 0, 2, 3
PROGRAM = {"steps": [{"op": "randn", "attributes": {"shape": [30, 40], "seed": 1}, "output": "x"},
                     {"op": "softmax", "inputs": ["x"], "output": "p"},
                     {"op": "transpose", "inputs": ["p"], "output": "turned"},
                     {"op": "matmul", "inputs": ["turned", "x"], "output": "y"}],
           "gradients": [{"of": "y", "with_respect_to": ["x"]}], "outputs": ["y", "grad_x"]}
# What opens or stands in a file of each language.
SIGNS = {"wgsl": (".wgsl", b"@compute"), "spirv": (".spv", b"\x03\x02\x23\x07"), "msl": (".metal", b"kernel void"),
         "hlsl": (".hlsl", b"[numthreads("), "glsl": (".comp", b"#version 450")}


class Kernels(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-kernels-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.program = self.folder / "program.json"
        self.program.write_text(json.dumps(PROGRAM))

    def weft(self, *arguments, **environment):
        return subprocess.run([WEFT, "kernels", *map(str, arguments)], capture_output=True, text=True,
                              env={**os.environ, **environment})

    def refused(self, code, part, *arguments, **environment):
        done = self.weft(*arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(part, done.stderr)

    def test_every_language(self):
        for target, (extension, sign) in SIGNS.items():
            if target != "wgsl" and not (shutil.which("naga") or os.environ.get("WEFT_NAGA")):
                continue
            with self.subTest(target):
                out = self.folder / target
                done = self.weft(self.program, "--target", target, "--out", out)
                self.assertEqual(done.returncode, OK, done.stderr)
                manifest = json.loads((out / "manifest.json").read_text())
                self.assertEqual(manifest["language"], target)
                self.assertEqual([each["name"] for each in manifest["outputs"]], ["grad_x", "y"])
                self.assertEqual(manifest["outputs"][1]["shape"], [40, 40])
                self.assertIn(f"{len(manifest['kernels'])} kernels in {target}", done.stdout)
                for kernel in manifest["kernels"]:
                    self.assertTrue(kernel["file"].endswith(extension), kernel["file"])
                    text = (out / kernel["file"]).read_bytes()
                    self.assertIn(sign, text)
                    for binding in kernel["bindings"]:
                        place = {"wgsl": f"@binding({binding['binding']})", "msl": f"[[buffer({binding['binding']})]]",
                                 "hlsl": f"register({'t' if binding['access'] == 'read' else 'u'}{binding['binding']})",
                                 "glsl": f"binding = {binding['binding']})"}.get(target)
                        if place:
                            self.assertIn(place.encode(), text)
                    if target == "glsl" and shutil.which("glslangValidator"):
                        subprocess.run(["glslangValidator", "-V", "--target-env", "vulkan1.1", out / kernel["file"], "-o",
                                        self.folder / "compiled.spv"], check=True, stdout=subprocess.DEVNULL)

    def test_what_it_refuses(self):
        out = self.folder / "out"
        self.refused(USAGE, '"cuda" is not a language of kernels; they are wgsl, spirv, msl, hlsl, glsl', self.program,
                     "--target", "cuda", "--out", out)
        self.refused(USAGE, "not an empty folder", self.program, "--out", self.folder)
        self.refused(USAGE, "subgroup_size", self.program, "--subgroup-size", 3, "--out", out)
        self.refused(FILE, "missing.json", self.folder / "missing.json", "--out", out)
        self.refused(FILE, "script/setup --kernels", self.program, "--target", "spirv", "--out", out, PATH="/nowhere", WEFT_NAGA="")
        self.refused(FILE, "no such file", self.program, "--target", "spirv", "--out", out, WEFT_NAGA="/nowhere/naga")
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
