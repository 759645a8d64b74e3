// The parts of "weft" that are scripts themselves: classes of errors, and component trees for JSX.
#include <string_view>

#include "script/engine.hpp"

namespace weft::script {
namespace {

constexpr std::string_view kPrelude = R"js((() => {
"use strict";
class WeftError extends Error {}
const made = { WeftError };
for (const name of ["ShapeError", "DTypeError", "DeviceError", "FileError", "UsageError", "OperationError", "AccessError"])
  made[name] = { [name]: class extends WeftError {} }[name];
made.DeviceMemoryError = { DeviceMemoryError: class extends made.DeviceError {} }.DeviceMemoryError;
for (const name of Object.keys(made)) {
  Object.defineProperty(made[name], "name", { value: name });
  Object.defineProperty(made[name].prototype, "name", { value: name, writable: true, configurable: true });
}
delete globalThis.SharedArrayBuffer;
delete globalThis.Atomics;

// Elements of component trees, as JSX writes them.
const Fragment = Symbol("Fragment");
const h = (type, props, ...children) =>
  Object.freeze({ type, props: Object.freeze({ ...props }), children: Object.freeze(children.flat(Infinity)) });
// A tree without functions as types: components are called with their props and children, and fragments are their children.
const expanded = (element) => {
  if (Array.isArray(element)) return element.flatMap(expanded);
  if (element === null || element === undefined || typeof element === "boolean") return [];
  if (typeof element !== "object" || !("type" in element)) throw new made.UsageError("a tree: " + String(element) + " is not an element");
  const { type, props, children } = element;
  if (type === Fragment) return children.flatMap(expanded);
  if (typeof type !== "function") return [{ type, props: { ...props }, children: (children ?? []).flatMap(expanded) }];
  const key = props?.key;
  const result = expanded(type({ ...props, children }));
  return key === undefined || result.length !== 1 ? result : [{ ...result[0], props: { key, ...result[0].props } }];
};
const expand = (element) => {
  const [only, ...rest] = expanded(element);
  if (only === undefined || rest.length > 0) throw new made.UsageError("a tree has one element at its root, not " + (only ? rest.length + 1 : 0));
  return only;
};
const PlainError = Error;
const stackOf = () => new PlainError().stack;
// Gives the values of a subscription to their taker, one after the other.
const drive = async (values, emit) => { for await (const value of await values) await emit(value); };
// What console.log needs of built-in objects. It was taken before the script could change it, and calls nothing of the script.
const { apply, defineProperty } = Reflect;
const { forEach: forEachEntry } = Map.prototype, { forEach: forEachElement } = Set.prototype, { toISOString, getTime } = Date.prototype;
const getterOf = (name) => Object.getOwnPropertyDescriptor(RegExp.prototype, name).get;
const sourceOf = getterOf("source");
const flagGetters = [["d", "hasIndices"], ["g", "global"], ["i", "ignoreCase"], ["m", "multiline"], ["s", "dotAll"], ["u", "unicode"], ["v", "unicodeSets"],
                     ["y", "sticky"]].map(([flag, name]) => [flag, getterOf(name)]);
const isMissing = Number.isNaN;
const gather = (forEach, collection) => {
  const list = [];
  let count = 0;
  const put = (value) => defineProperty(list, count++, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  apply(forEach, collection, [(value, key) => { if (forEach === forEachEntry) put(key); put(value); }]);
  return list;
};
// What JavaScript does with a tensor by itself: loops over it, makes it a primitive value for an operator, and writes it as JSON.
const extendTensor = (prototype) => {
  const add = (name, value) => defineProperty(prototype, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
  add(Symbol.iterator, function* () {
    if (this.shape.length === 0) throw new made.UsageError("a tensor of rank 0 has no rows to iterate over");
    for (let i = 0; i < this.shape[0]; ++i) yield this.get(i);
  });
  add(Symbol.toPrimitive, function (hint) {
    if (hint === "string") return this.toString();
    if (this.shape.every((extent) => extent === 1)) return this.item();
    throw new made.UsageError(`operators take tensors of one element, and not ${this.dtype} [${this.shape.join(", ")}]; write x.add(y) for x + y, x.gt(y) for x > y, and \`\${x}\` for a text`);
  });
  add("toJSON", function () { return this.toArray(); });
};
const pristine = {
  extendTensor,
  entries: (map) => gather(forEachEntry, map),
  elements: (set) => gather(forEachElement, set),
  date: (date) => (isMissing(apply(getTime, date, [])) ? "Invalid Date" : apply(toISOString, date, [])),
  regexp: (regexp) => {
    let text = "/" + apply(sourceOf, regexp, []) + "/";
    for (let i = 0; i < flagGetters.length; ++i) if (apply(flagGetters[i][1], regexp, [])) text += flagGetters[i][0];
    return text;
  },
};
return { ...made, h, Fragment, stackOf, drive, expand, pristine };
})())js";

}  // namespace

void define_prelude(Engine& engine) {
  const Local made =
      engine.checked(JS_Eval(engine.context, kPrelude.data(), kPrelude.size(), "weft:prelude", JS_EVAL_TYPE_GLOBAL));
  JSPropertyEnum* names = nullptr;
  std::uint32_t count = 0;
  engine.checked(JS_GetOwnPropertyNames(engine.context, &names, &count, made.get(), JS_GPN_STRING_MASK));
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* const text = JS_AtomToCString(engine.context, names[i].atom);
    const std::string name = text;
    JS_FreeCString(engine.context, text);
    Local value(engine.context, JS_GetProperty(engine.context, made.get(), names[i].atom));
    if (name == "stackOf" || name == "drive" || name == "expand" || name == "pristine") {
      (name == "drive"      ? engine.drive_function
       : name == "expand"   ? engine.expand_function
       : name == "pristine" ? engine.pristine
                            : engine.stack_function) = value.release();
      continue;
    }
    if (name.ends_with("Error")) engine.error_classes.emplace(name, JS_DupValue(engine.context, value.get()));
    add_export(engine, name.c_str(), std::move(value));
  }
  JS_FreePropertyEnum(engine.context, names, count);
}

}  // namespace weft::script
