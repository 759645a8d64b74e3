#!/usr/bin/python3
"""tools/join_modules.py FOLDER TARGET: the CommonJS modules of Sucrase as one script that sets globalThis.transform.

Left out are its command, and source maps and checks of options, which need further packages: transform() is only called with
options that are known to be right.
"""
import json
import pathlib
import sys

LEFT_OUT = ("esm/", "cli.js", "register.js", "computeSourceMap.js", "Options-gen-types.js", "Options.js", "util/formatTokens.js")
HEAD = '"use strict";\n(() => {\nconst files = {\n'
TAIL = """};
const made = {};
const stand_in = {validateOptions() {}, formatTokens() {}};
const load = (path) => {
  if (!(path in files)) path += "/index";
  if (!(path in files)) return stand_in;
  if (path in made) return made[path].exports;
  const module = made[path] = {exports: {}};
  const require = (name) => {
    const parts = path.split("/").slice(0, -1);
    for (const part of name.split("/")) {
      if (part === "..") parts.pop();
      else if (part !== ".") parts.push(part);
    }
    return load(parts.join("/"));
  };
  files[path](require, module, module.exports);
  return module.exports;
};
globalThis.transform = load("index").transform;
})();
"""


def main(folder, target):
    root = pathlib.Path(folder)
    with open(target, "w", encoding="utf-8") as out:
        out.write(HEAD)
        for path in sorted(root.rglob("*.js")):
            name = path.relative_to(root).as_posix()
            if not name.startswith(LEFT_OUT):
                out.write(f"{json.dumps(name[:-3])}: (require, module, exports) => {{{path.read_text('utf-8')}\n}},\n")
        out.write(TAIL)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
