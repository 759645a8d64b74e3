#!/usr/bin/python3
"""What the wheel needs and does not bring is what docs/python.md lists: dependencies.py TREE. Libraries by readelf, and the newest
versions of symbols."""
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile


def main():
    tree = pathlib.Path(sys.argv[1])
    page = (tree / "docs/python.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `(lib[^`]+|ld-[^`]+)` \| ([^|]+?) \|$", page, re.M))
    wheel = max(glob.glob(str(tree / "build/python-wheel/weft-*.whl")), key=os.path.getmtime)
    problems, versions = [], {"GLIBC": set(), "GLIBCXX": set()}
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        modules = glob.glob(folder + "/weft/_weft*.so")
        assert len(modules) == 1, modules
        brought = {os.path.basename(path): path for path in glob.glob(folder + "/weft/lib/lib*.so.*") if not path.endswith(".copyright")}
        needed = set()
        for path in [*modules, *brought.values()]:
            dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
            needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
            places = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
            if places != (["$ORIGIN/lib"] if path == modules[0] else []):
                problems.append(f"{os.path.basename(path)} looks for libraries in {places}")
            symbols = subprocess.run(["readelf", "-V", path], capture_output=True, text=True, check=True).stdout
            for family in ("GLIBC", "GLIBCXX"):
                versions[family] |= set(re.findall(family + r"_([0-9][0-9.]*)", symbols))
        if set(brought) - needed:
            problems.append(f"the wheel brings {sorted(set(brought) - needed)}, which nothing needs")
        missing = needed - set(brought)
        if missing != set(documented):
            problems.append(f"the wheel needs {sorted(missing - set(documented))} too, and not {sorted(set(documented) - missing)}; docs/python.md lists them")
        for path in brought:
            if not os.path.exists(f"{folder}/weft/lib/{path}.copyright"):
                problems.append(f"the licence of {path} is not in the wheel")
        for family, found in versions.items():
            newest = max(found, key=lambda version: [int(part) for part in version.split(".")])
            if f"{family} {newest}" not in page:
                problems.append(f"the wheel needs {family} {newest}, which docs/python.md does not say")
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"{pathlib.Path(wheel).name} brings {', '.join(sorted(brought))} and needs {', '.join(sorted(missing))}")


main()
