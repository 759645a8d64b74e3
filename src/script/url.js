// URL and URLSearchParams, by the URL standard of WHATWG: hosts are ASCII, or IP addresses.
(() => {
"use strict";
const ports = { "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21", "file:": "" };
const encoder = new TextEncoder(), decoder = new TextDecoder();
const percent = (byte) => "%" + byte.toString(16).toUpperCase().padStart(2, "0");
// Characters outside ASCII, controls, and those of the set.
const encode = (text, set) => {
  let made = "";
  for (const character of text) {
    const code = character.codePointAt(0);
    if (code > 0x1f && code < 0x7f && !set.includes(character)) made += character;
    else for (const byte of encoder.encode(character)) made += percent(byte);
  }
  return made;
};
const decode = (text) => {
  if (!text.includes("%")) return text;
  const bytes = [];
  const source = encoder.encode(text);
  for (let i = 0; i < source.length; ++i) {
    const hex = source[i] === 0x25 ? String.fromCharCode(source[i + 1] ?? 0, source[i + 2] ?? 0) : "";
    if (/^[0-9a-f]{2}$/i.test(hex)) {
      bytes.push(parseInt(hex, 16));
      i += 2;
    } else {
      bytes.push(source[i]);
    }
  }
  return decoder.decode(new Uint8Array(bytes));
};
const fragmentSet = " \"<>`", querySet = " \"#<>", pathSet = querySet + "?`{}^", userSet = pathSet + "/:;=@[\\]|";
const fail = (input) => { throw new TypeError(`Invalid URL: ${input}`); };

const ipv4 = (host, input) => {
  const parts = host.split(".");
  if (parts.at(-1) === "" && parts.length > 1) parts.pop();
  if (!/^(\d+|0x[0-9a-f]*)$/i.test(parts.at(-1))) return null;
  if (parts.length > 4) fail(input);
  const numbers = parts.map((part) => {
    const number = /^0x[0-9a-f]*$/i.test(part) ? Number.parseInt(part.slice(2) || "0", 16)
                 : /^0[0-7]+$/.test(part)      ? Number.parseInt(part, 8)
                 : /^(0|[1-9]\d*)$/.test(part) ? Number(part) : NaN;
    return Number.isNaN(number) ? fail(input) : number;
  });
  const last = numbers.pop();
  if (numbers.some((number) => number > 255) || last >= 256 ** (4 - numbers.length)) fail(input);
  const whole = numbers.reduce((sum, number, i) => sum + number * 256 ** (3 - i), last);
  return [24, 16, 8, 0].map((shift) => Math.floor(whole / 2 ** shift) % 256).join(".");
};

const ipv6 = (text, input) => {
  let rest = text;
  const dotted = /:(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(rest);
  if (dotted) {
    const [a, b, c, d] = dotted.slice(1).map(Number);
    if (dotted.slice(1).some((part) => Number(part) > 255 || (part.length > 1 && part[0] === "0"))) fail(input);
    rest = rest.slice(0, dotted.index + 1) + (a * 256 + b).toString(16) + ":" + (c * 256 + d).toString(16);
  }
  const halves = rest.split("::");
  if (halves.length > 2) fail(input);
  const pieces = halves.map((half) => (half === "" ? [] : half.split(":")));
  const count = pieces.flat().length;
  if (pieces.flat().some((piece) => !/^[0-9a-f]{1,4}$/i.test(piece)) || (halves.length === 2 ? count > 7 : count !== 8)) fail(input);
  const groups = [...pieces[0], ...new Array(halves.length === 2 ? 8 - count : 0).fill("0"), ...(pieces[1] ?? [])].map((piece) => parseInt(piece, 16));
  // The longest run of two zeros or more becomes "::".
  let best = { at: -1, length: 1 };
  for (let i = 0; i < 8; ++i) {
    let length = 0;
    while (i + length < 8 && groups[i + length] === 0) ++length;
    if (length > best.length) best = { at: i, length };
    i += length;
  }
  const words = groups.map((group) => group.toString(16));
  if (best.at < 0) return `[${words.join(":")}]`;
  return `[${words.slice(0, best.at).join(":")}::${words.slice(best.at + best.length).join(":")}]`;
};

const hostOf = (text, isSpecial, input) => {
  if (text.startsWith("[")) return text.endsWith("]") ? ipv6(text.slice(1, -1), input) : fail(input);
  if (!isSpecial) return /[\0\t\n\r #/:<>?@[\\\]^|]/.test(text) ? fail(input) : encode(text, "");
  const host = decode(text).toLowerCase();
  if (host === "" || /[^\x21-\x7e]|[#/:<>?@[\\\]^|%]/.test(host)) fail(input);
  return ipv4(host, input) ?? host;
};

// The segments of a path below those of `base`.
const pathOf = (text, base, protocol) => {
  const isSpecial = protocol in ports, segments = [...base];
  const parts = (isSpecial ? text.replaceAll("\\", "/") : text).split("/");
  parts.forEach((part, i) => {
    const isLast = i === parts.length - 1, plain = part.replace(/%2e/gi, ".");
    if (plain === "..") {
      segments.pop();
      if (isLast) segments.push("");
    } else if (plain === ".") {
      if (isLast) segments.push("");
    } else {
      segments.push(encode(part, pathSet));
    }
  });
  return segments;
};

const parse = (given, base) => {
  const input = String(given).replace(/^[\0-\x20]+|[\0-\x20]+$/g, "").replace(/[\t\n\r]/g, "");
  const url = { protocol: "", username: "", password: "", hostname: null, port: "", path: [], opaque: null, search: null, hash: null };
  let [, rest, , hash] = /^([^#]*)(#([^]*))?$/.exec(input);
  if (hash !== undefined) url.hash = encode(hash, fragmentSet);
  const scheme = /^[a-z][a-z0-9+.-]*:/i.exec(rest);
  if (scheme) {
    url.protocol = scheme[0].toLowerCase();
    rest = rest.slice(scheme[0].length);
  } else {
    if (!base || (base.opaque !== null && (rest !== "" || hash === undefined))) fail(given);
    url.protocol = base.protocol;
  }
  const isSpecial = url.protocol in ports;
  let query;
  [, rest, , query] = /^([^?]*)(\?([^]*))?$/.exec(rest);
  if (query !== undefined) url.search = encode(query, isSpecial ? querySet + "'" : querySet);
  const slash = isSpecial ? /^[/\\]/ : /^\//, slashes = isSpecial ? /^[/\\]{2}/ : /^\/\//;
  const isRelative = !scheme || (base && isSpecial && base.protocol === url.protocol && !slashes.test(rest) && url.protocol !== "file:");
  const takeAuthority = (text) => {
    const end = text.search(isSpecial ? /[/\\]/ : /\//);
    let authority = end < 0 ? text : text.slice(0, end);
    const at = authority.lastIndexOf("@");
    if (at >= 0) {
      const [user, ...password] = authority.slice(0, at).split(":");
      url.username = encode(user, userSet);
      url.password = encode(password.join(":"), userSet);
      authority = authority.slice(at + 1);
      if (authority === "") fail(given);
    }
    const [, host, , port] = /^(\[[^\]]*\]|[^:]*)(:(.*))?$/.exec(authority) ?? fail(given);
    if (port && (!/^\d+$/.test(port) || Number(port) > 65535)) fail(given);
    if (url.protocol === "file:" ? host === "" || host === "localhost" : !isSpecial && host === "") url.hostname = "";
    else url.hostname = hostOf(host, isSpecial, given);
    url.port = port && String(Number(port)) !== ports[url.protocol] ? String(Number(port)) : "";
    return end < 0 ? "" : text.slice(end);
  };
  if (isRelative && !slashes.test(rest)) {
    for (const key of ["username", "password", "hostname", "port"]) url[key] = base[key];
    if (rest === "") {
      url.path = base.path;
      url.opaque = base.opaque;
      if (url.search === null) url.search = base.search;
    } else {
      url.path = slash.test(rest) ? pathOf(rest.slice(1), [], url.protocol) : pathOf(rest, base.path.slice(0, -1), url.protocol);
    }
  } else if (slashes.test(rest) || (isSpecial && url.protocol !== "file:")) {
    const path = takeAuthority(isSpecial && url.protocol !== "file:" ? rest.replace(/^[/\\]*/, "") : rest.slice(2));
    url.path = path === "" ? (isSpecial ? [""] : []) : pathOf(path.slice(1), [], url.protocol);
  } else if (url.protocol === "file:") {
    url.hostname = "";
    url.path = pathOf(rest.replace(slash, ""), [], url.protocol);
  } else if (rest.startsWith("/")) {
    url.path = pathOf(rest.slice(1), [], url.protocol);
  } else {
    url.opaque = encode(rest, "");
  }
  return url;
};

// ---- URLSearchParams --------------------------------------------------------------------------------------------------

const formEncode = (text) => encode(String(text).toWellFormed(), "!\"#$%&'()+,/:;<=>?@[\\]^`{|}~").replaceAll(" ", "+");
const pairsOf = (text) => text.split("&").filter(Boolean).map((part) => {
  const at = part.indexOf("="), plain = (each) => decode(each.replaceAll("+", " "));
  return at < 0 ? [plain(part), ""] : [plain(part.slice(0, at)), plain(part.slice(at + 1))];
});
const changed = Symbol(), fill = Symbol();
class URLSearchParams {
  #list = [];
  [changed] = () => {};
  constructor(given = "") {
    if (typeof given === "object" && given !== null) {
      for (const pair of given[Symbol.iterator] ? given : Object.entries(given)) {
        const [name, value, ...more] = [...pair];
        if (value === undefined || more.length > 0) throw new TypeError("URLSearchParams: each entry must be a name and a value");
        this.#list.push([String(name), String(value)]);
      }
    } else {
      this[fill](String(given));
    }
  }
  [fill](text) { this.#list = pairsOf(text.replace(/^\?/, "")); }
  get size() { return this.#list.length; }
  append(name, value) {
    this.#list.push([String(name), String(value)]);
    this[changed]();
  }
  delete(name, value) {
    this.#list = this.#list.filter(([each, own]) => each !== String(name) || (value !== undefined && own !== String(value)));
    this[changed]();
  }
  get(name) { return this.#list.find(([each]) => each === String(name))?.[1] ?? null; }
  getAll(name) { return this.#list.filter(([each]) => each === String(name)).map(([, value]) => value); }
  has(name, value) { return this.#list.some(([each, own]) => each === String(name) && (value === undefined || own === String(value))); }
  set(name, value) {
    const at = this.#list.findIndex(([each]) => each === String(name));
    if (at < 0) return this.append(name, value);
    this.#list = this.#list.filter(([each], i) => i <= at || each !== String(name));
    this.#list[at] = [String(name), String(value)];
    this[changed]();
  }
  sort() {
    this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this[changed]();
  }
  forEach(call, self) { for (const [name, value] of this) call.call(self, value, name, this); }
  *entries() { for (let i = 0; i < this.#list.length; ++i) yield [...this.#list[i]]; }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([name, value]) => `${formEncode(name)}=${formEncode(value)}`).join("&"); }
}

// ---- URL --------------------------------------------------------------------------------------------------------------

class URL {
  #url;
  #params = new URLSearchParams();
  constructor(input, base) {
    this.#url = parse(input, base === undefined ? undefined : parse(base));
    this.#params[fill](this.search);
    this.#params[changed] = () => { this.#url.search = this.#params.size > 0 ? this.#params.toString() : null; };
  }
  static canParse(input, base) {
    return URL.parse(input, base) !== null;
  }
  static parse(input, base) {
    try {
      return new URL(input, base);
    } catch {
      return null;
    }
  }
  // Sets a part by parsing the whole again; a part that does not fit changes nothing.
  #change(part, value) {
    const url = { ...this.#url, ...{ [part]: value } };
    try {
      this.#url = parse(URL.#text(url));
    } catch {
      // as the standard wants it
    }
    this.#params[fill](this.search);
  }
  static #authority(url) {
    if (url.hostname === null) return "";
    const user = url.username || url.password ? url.username + (url.password ? `:${url.password}` : "") + "@" : "";
    return `//${user}${url.hostname}${url.port ? `:${url.port}` : ""}`;
  }
  static #path(url) {
    if (url.opaque !== null) return url.opaque;
    if (url.path.length === 0) return "";
    return (url.hostname === null && url.path.length > 1 && url.path[0] === "" ? "/." : "") + "/" + url.path.join("/");
  }
  static #text(url) {
    return url.protocol + URL.#authority(url) + URL.#path(url) + (url.search === null ? "" : `?${url.search}`) + (url.hash === null ? "" : `#${url.hash}`);
  }
  get href() { return URL.#text(this.#url); }
  set href(value) {
    this.#url = parse(value);
    this.#params[fill](this.search);
  }
  get origin() { return this.protocol in ports && this.protocol !== "file:" ? `${this.protocol}//${this.host}` : "null"; }
  get protocol() { return this.#url.protocol; }
  set protocol(value) { this.#change("protocol", String(value).replace(/:.*$/, "") + ":"); }
  get username() { return this.#url.username; }
  set username(value) { this.#change("username", encode(String(value), userSet)); }
  get password() { return this.#url.password; }
  set password(value) { this.#change("password", encode(String(value), userSet)); }
  get host() { return this.hostname + (this.port ? `:${this.port}` : ""); }
  set host(value) {
    const [, host, , port] = /^(\[[^\]]*\]|[^:]*)(:(\d*))?/.exec(String(value));
    this.#change("hostname", host);
    if (port) this.port = port;
  }
  get hostname() { return this.#url.hostname ?? ""; }
  set hostname(value) { this.#change("hostname", String(value)); }
  get port() { return this.#url.port; }
  set port(value) { this.#change("port", String(value)); }
  get pathname() { return this.#url.opaque ?? this.#url.path.map((part) => "/" + part).join(""); }
  set pathname(value) { if (this.#url.opaque === null) this.#change("path", pathOf(String(value).replace(/^\//, ""), [], this.protocol).map((part) => part.replaceAll("#", "%23"))); }
  get search() { return this.#url.search ? `?${this.#url.search}` : ""; }
  set search(value) { this.#change("search", String(value) === "" ? null : encode(String(value).replace(/^\?/, ""), querySet)); }
  get searchParams() { return this.#params; }
  get hash() { return this.#url.hash ? `#${this.#url.hash}` : ""; }
  set hash(value) { this.#change("hash", String(value) === "" ? null : String(value).replace(/^#/, "")); }
  toString() { return this.href; }
  toJSON() { return this.href; }
}

for (const [name, value] of Object.entries({ URL, URLSearchParams }))
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
})()
