// Globals of the web: the same lines in Node.js and in `weft run` (web_judge.py).
const lines = [];
const say = (...values) => lines.push(JSON.stringify(values, (_, value) => (typeof value === "bigint" ? `${value}n` : value)));
const attempt = (work) => {
  try {
    return work();
  } catch (error) {
    return error.name;
  }
};

// ---- URL
const bases = [undefined, "http://example.org/a/b?q#h", "file:///x/y", "mailto:a@b", "custom://host/p/q"];
for (const input of [
  "http://example.org", "HTTP://ExAmple.org:80/%7Efoo/../bar", "https://user:p%40ss@host:8443/p?a=b&c=d#frag", "http://a/b/./c/../d", "//other/x", "/abs", "rel", "../up", "./same/", "?query",
  "#hash", "", "http://192.168.0.1/", "http://0x7f.1/", "http://256.1.1.1/", "http://1.2.3/", "http://[::1]:3000/", "http://[2001:db8::0:1]/", "http://[1:2:3:4:5:6:7:8]/", "http://[::ffff:1.2.3.4]/",
  "http://[1::2::3]/", "ftp://f:21/x", "file:///C:/a/../b", "mailto:x@y.z?subject=hi", "data:text/plain,hello world", "javascript:alert(1)", "http://a b/", "http://ex%41mple/", "http://host:99999/",
  "http://host:/x", "http:\\\\back\\slash", "http://h/a b?c d#e f", "http://h/ü?ü#ü", "http://h/'\"<>`{}|", "http://h?'\"", "  http://trim/  ", "http://h/a\tb\nc", "http://", "http:///x", "custom://Host/Path/../x", "custom:opaque",
  "custom:/a/../b", "http://user@/x", "http://h/%2e%2E/x", "http://h/a/%2e/b/", "urn:isbn:123", "http://h/..", "wss://h:443/s", "https://h:443", "http://h//double//", "x", "http://h/?", "http://h/#", "http://u:@h/", "1http://x", "a+b-c.d://h",
])
  for (const base of bases)
    say(input, base, attempt(() => {
      const u = new URL(input, base);
      return [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash];
    }));
say(URL.canParse("x"), URL.canParse("x", "http://h"), JSON.stringify({ u: new URL("http://h") }), String(new URL("http://h/a b")));
{
  const u = new URL("http://example.org/p?a=1&b=2");
  u.searchParams.append("c", "x y&z");
  u.searchParams.delete("a");
  say(u.href, u.search);
  u.search = "?n=1";
  say(u.searchParams.get("n"), [...u.searchParams]);
  u.hash = "top"; u.pathname = "/new path"; u.port = "8080"; u.protocol = "https"; u.hostname = "other.net"; u.username = "me";
  say(u.href);
  u.port = "443"; u.hash = ""; u.search = "";
  say(u.href);
  u.href = "http://again/";
  say(u.href, attempt(() => { u.href = "bad"; }));
}
{
  const p = new URLSearchParams("?a=1&a=2&b=%20+x&c&=d&e=%zz&%F0%9F%98%80=😀");
  say([...p], p.getAll("a"), p.get("nope"), p.has("a", "2"), p.size, String(p));
  p.set("a", "9"); p.sort(); p.delete("b", "nope");
  say(String(p), [...p.keys()], [...p.values()]);
  say(String(new URLSearchParams({ q: "a b", "ü": "*-._~!'()" })), String(new URLSearchParams([["x", "1"], ["x", "2"]])), attempt(() => new URLSearchParams([["x"]])));
  const seen = [];
  p.forEach((value, name) => seen.push([name, value]));
  say(seen);
}

// ---- Texts
const encoder = new TextEncoder();
for (const text of ["", "abc", "é€😀", "a\ud800b", "\udc00", "\ud83d\ude00\ud83d"]) say([...encoder.encode(text)]);
say(encoder.encodeInto("aé😀", new Uint8Array(5)), encoder.encoding);
for (const bytes of [[0x61, 0xff, 0x62], [0xc3], [0xe2, 0x82], [0xe2, 0x82, 0x61], [0xf0, 0x9f, 0x98, 0x80], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf5, 0x80], [0xef, 0xbb, 0xbf, 0x78], [0xe0, 0x80, 0x80], [0xf4, 0x90, 0x80, 0x80]]) {
  const data = new Uint8Array(bytes);
  say(new TextDecoder().decode(data), attempt(() => new TextDecoder("utf-8", { fatal: true }).decode(data)), new TextDecoder("utf8", { ignoreBOM: true }).decode(data));
  const decoder = new TextDecoder();
  say([...bytes.map((byte) => decoder.decode(new Uint8Array([byte]), { stream: true })), decoder.decode()]);
}
say(new TextDecoder("utf-16le").decode(new Uint8Array([0x41, 0, 0x3d, 0xd8, 0, 0xde])), new TextDecoder().decode(new Uint8Array([1, 97, 98, 2]).subarray(1, 3)), attempt(() => new TextDecoder("klingon")));
say(new TextDecoder().decode(new Uint16Array([0x6261]).buffer), btoa("hi!"), atob("aGkh"), attempt(() => new TextDecoder().decode("text")));

// ---- Copies
{
  const from = { n: 1, s: "x", d: new Date(5), r: /a+/gi, m: new Map([[{ k: 1 }, new Set([1, [2]])]]), a: [1, , 3], b: new Uint8Array([1, 2]), z: -0, u: undefined, big: 5n, e: new RangeError("far") };
  from.self = from;
  from.again = from.a;
  const to = structuredClone(from);
  say(to !== from, to.self === to, to.again === to.a, to.d.getTime(), String(to.r), [...to.m][0][0], [...[...to.m][0][1]], to.a.length, 1 in to.a, [...to.b], Object.is(to.z, -0), "u" in to, to.big, to.e instanceof RangeError, to.e.message);
  class Point { x = 1; get y() { return 2; } }
  say(structuredClone(new Point()), structuredClone(new Point()) instanceof Point, attempt(() => structuredClone(() => 1)), attempt(() => structuredClone({ f() {} })), attempt(() => structuredClone(Symbol("s"))));
  const buffer = new ArrayBuffer(4), pair = structuredClone([new Uint8Array(buffer), new Uint8Array(buffer, 2)]);
  say(pair[0].buffer === pair[1].buffer, pair[1].byteOffset, structuredClone(new DataView(buffer, 1, 2)).byteLength, structuredClone(null), structuredClone("t"));
}

// ---- Events and aborts
{
  const target = new EventTarget(), seen = [];
  const listener = (event) => seen.push([event.type, event.target === target]);
  target.addEventListener("x", listener);
  target.addEventListener("x", listener);
  target.addEventListener("x", { handleEvent: () => seen.push("object") }, { once: true });
  const controller = new AbortController();
  target.addEventListener("x", () => seen.push("until"), { signal: controller.signal });
  target.dispatchEvent(new Event("x"));
  controller.abort();
  target.dispatchEvent(new Event("x"));
  target.removeEventListener("x", listener);
  target.dispatchEvent(new Event("x"));
  const cancelled = new Event("y", { cancelable: true });
  target.addEventListener("y", (event) => event.preventDefault());
  say(seen, target.dispatchEvent(cancelled), cancelled.defaultPrevented);
  say(controller.signal.aborted, controller.signal.reason.name, attempt(() => controller.signal.throwIfAborted()), attempt(() => new AbortSignal()));
  say(AbortSignal.abort("why").reason, AbortSignal.any([AbortSignal.abort(1), new AbortController().signal]).reason);
  const other = new AbortController(), any = AbortSignal.any([other.signal]);
  any.onabort = () => seen.push("any");
  other.abort(new Error("stop"));
  say(seen.at(-1), any.reason.message, new DOMException("m", "DataCloneError").name);
  const late = AbortSignal.timeout(5);
  const alive = setInterval(() => {}, 1000);  // the signal alone does not keep a script running
  await new Promise((done) => late.addEventListener("abort", done));
  clearInterval(alive);
  AbortSignal.timeout(100000);
  say(late.reason.name);
}

// ---- Replies and random numbers
{
  const headers = new Headers({ "Content-Type": "text/plain", b: "2" });
  headers.append("B", " 3 ");
  const response = new Response('{"a": [1]}', { status: 201, headers });
  say(headers.get("content-type"), headers.get("b"), headers.has("c"), [...headers], response.ok, response.status, await response.json(), await response.text().catch((error) => error.name));
  say([...new Uint8Array(await new Response("hé").arrayBuffer())], new Response("", { status: 404 }).ok);
  const numbers = crypto.getRandomValues(new Uint32Array(8));
  say(new Set(numbers).size > 6, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.randomUUID() !== crypto.randomUUID(), attempt(() => crypto.getRandomValues(new Float32Array(1))));
}
console.log(lines.join("\n"));
