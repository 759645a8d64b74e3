// Runs the blocks of docs/browser.md, each as a module of its own.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const tree = fileURLToPath(new URL("../..", import.meta.url));
const index = new URL("../../build-wasm/package/index.js", import.meta.url).href;
const text = readFileSync(join(tree, "docs/browser.md"), "utf8");
const blocks = [...text.matchAll(/^```mjs\n([^]*?)^```$/gm)].map((match) => ({
  line: text.slice(0, match.index).split("\n").length + 1,
  code: match[1],
}));

test("there are blocks", () => assert.ok(blocks.length >= 4));
for (const { line, code } of blocks)
  test(`docs/browser.md:${line}`, () => {
    const folder = mkdtempSync(join(tmpdir(), "weft-docs-"));
    try {
      writeFileSync(join(folder, "block.mjs"), code.replaceAll('from "weft"', `from ${JSON.stringify(index)}`));
      const run = spawnSync(process.execPath, ["block.mjs"], { cwd: folder, encoding: "utf8" });
      assert.equal(run.status, 0, run.stderr);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
