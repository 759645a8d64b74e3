// The declarations of the package, by the TypeScript that script/setup --judges fetches.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const tree = fileURLToPath(new URL("../..", import.meta.url));
const compiler = join(process.env.WEFT_CACHE ?? join(tree, ".cache"), "judges/typescript/lib/tsc.js");

test("the declarations fit what programs write", { skip: existsSync(compiler) ? false : "script/setup --judges" }, () => {
  const run = spawnSync(process.execPath, [
    compiler, "--noEmit", "--strict", "--target", "esnext", "--module", "nodenext", "--lib", "esnext,dom",
    join(tree, "test/browser/types.mts"),
  ], { encoding: "utf8" });
  assert.equal(run.status, 0, run.stdout);
});
