// The package in a headless Chromium: on the CPU, and through WebGPU on SwiftShader, against the same in Node.js, which
// node.test.mjs compares with the native build.
import assert from "node:assert/strict";
import { join } from "node:path";
import { before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium, runPage } from "./chromium.mjs";
import * as scenarios from "./scenarios.mjs";

const tree = fileURLToPath(new URL("../..", import.meta.url));
const folders = {
  package: join(tree, "build-wasm/package"),
  page: join(tree, "build-wasm/page"),
  test: join(tree, "test/browser"),
};
const skip = chromium ? false : "there is no Chromium: script/setup --browser";
const { load } = await import(join(folders.package, "index.js"));

function near(found, expected, relative, what) {
  assert.equal(found.length, expected.length, what);
  found.forEach((value, i) => {
    const limit = relative * Math.max(1, Math.abs(expected[i]));
    assert.ok(Math.abs(value - expected[i]) <= limit, `${what}[${i}]: ${value}, expected ${expected[i]}`);
  });
}

let report, expected;
before(async () => {
  if (skip) return;
  const weft = await load();
  expected = {
    program: await scenarios.runProgram(weft),
    learn: await scenarios.learn(weft),
    text: await scenarios.trainText(weft, 10),
  };
  report = await runPage("/test/page.html", folders, 480);
});

test("the page runs, and can wait inside of WebAssembly", { skip }, () => {
  assert.equal(report.error, undefined);
  assert.equal(report.canSuspend, true);
  assert.match(report.device, /^webgpu:0/);
});
for (const [device, limit] of [["cpu", 1e-6], ["webgpu", 1e-4]]) {
  test(`ops and gradients on ${device}`, { skip }, () => {
    for (const [name, { shape, data }] of Object.entries(expected.program)) {
      assert.deepEqual(report[device].program[name].shape, shape, name);
      near(report[device].program[name].data, data, limit, name);
    }
  });
  test(`a compiled training step on ${device}`, { skip }, () => near(report[device].learn, expected.learn, 10 * limit, "loss"));
}
test("training on a text through WebGPU", { skip }, () => {
  near(report.webgpu.text.losses, expected.text.losses, 1e-2, "loss");
  assert.ok(report.webgpu.text.written.length >= 20);
});
test("the page trains a network, draws the loss and lets the network write", { skip }, () => {
  const { losses, sample, curve } = report.page;
  assert.equal(losses.length, 60);
  assert.ok(losses.at(-1) < losses[0] / 2, `${losses}`);
  assert.ok(sample.length >= 100, sample);
  assert.equal(curve.split("L").length, 60);
});
test("mistakes on a WebGPU device are errors, and the device goes on", { skip }, () => {
  assert.match(report.webgpu.mistakes.shapes, /^WeftShapeError: matmul: /);
  assert.match(report.webgpu.mistakes.memory, /^WeftDeviceError: /);
  assert.match(report.webgpu.mistakes.inTrace, /^RangeError: mine$/);
  assert.deepEqual(report.webgpu.mistakes.after, [2, 4, 6]);
});
