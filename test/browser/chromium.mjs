// Runs a page of this folder in a headless Chromium with WebGPU on SwiftShader, behind a server of the files that it needs.
import { spawn } from "node:child_process";
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";

const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".css": "text/css",
  ".wasm": "application/wasm",
};

/** Serves folders under names, and takes what pages post to /report. */
function serve(folders) {
  let report;
  const reported = new Promise((resolve) => (report = resolve));
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    if (request.method === "POST" && path === "/report") {
      let body = "";
      request.on("data", (part) => (body += part)).on("end", () => {
        response.end();
        report(JSON.parse(body));
      });
      return;
    }
    const [, name, ...rest] = path.split("/");
    const file = folders[name] && join(folders[name], ...rest);
    if (!file || !existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream" });
    createReadStream(file).pipe(response);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve({ server, reported, port: server.address().port })));
}

export const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

/** What the page at `path` posts to /report. Errors: what the browser printed, if there is no report in time. */
export async function runPage(path, folders, seconds) {
  const { server, reported, port } = await serve(folders);
  const profile = mkdtempSync(join(tmpdir(), "weft-chromium-"));
  const browser = spawn(chromium, [
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run", "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader", "--enable-logging=stderr", `--user-data-dir=${profile}`, `http://127.0.0.1:${port}${path}`,
  ]);
  let printed = "";
  browser.stderr.on("data", (part) => (printed += part));
  let timer;
  const timeout = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no report after ${seconds} s\n${printed.slice(-5000)}`)), 1000 * seconds);
  });
  const ended = new Promise((_, reject) => {
    browser.on("error", reject);
    browser.on("exit", (code) => reject(new Error(`Chromium ended with ${code}\n${printed.slice(-5000)}`)));
  });
  try {
    return await Promise.race([reported, timeout, ended]);
  } finally {
    clearTimeout(timer);
    ended.catch(() => {});
    browser.kill();
    await new Promise((resolve) => (browser.exitCode !== null || browser.signalCode !== null ? resolve() : browser.on("exit", resolve)));
    server.closeAllConnections();
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
