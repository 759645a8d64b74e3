// Functions of the ops, made from the table that the module has.
import { Tensor, Variable } from "./tensor.js";
import { WeftError } from "./module.js";

const attributeTypes = ["integer", "number", "boolean", "integers", "pairs", "dtype", "choice", "numbers"]; // weft_attribute_type
const attributeBytes = 48; // of a weft_attribute

/** The rows of the table: name, doc, inputs and attributes of each op. */
export function readTable(module) {
  return module.scratch((memory) => {
    const info = memory.allocate(28);
    const text = (at) => module.text(module.view().getUint32(at, true));
    const number = (at) => module.view().getUint32(at, true);
    const flag = (at) => module.view().getUint8(at) !== 0;
    return Array.from({ length: module.exports.weft_op_count() }, (_, index) => {
      module.call("weft_op_at", index, info);
      const row = {
        name: text(info),
        family: text(info + 4),
        doc: text(info + 8),
        several: flag(info + 24),
        inputs: [],
        attributes: [],
      };
      const [inputs, attributes] = [number(info + 16), number(info + 20)];
      const name = memory.text(row.name);
      for (let i = 0; i < inputs; ++i) {
        module.call("weft_op_input", name, i, info);
        row.inputs.push({ name: text(info), optional: flag(info + 4), repeated: flag(info + 5) });
      }
      for (let i = 0; i < attributes; ++i) {
        module.call("weft_op_attribute", name, i, info);
        const type = attributeTypes[number(info + 8)];
        row.attributes.push({ name: text(info), doc: text(info + 4), type, required: flag(info + 12) });
      }
      return row;
    });
  });
}

function writeAttribute(memory, view, at, spec, value, op) {
  const wrong = (expected) =>
    new WeftError("Usage", `${op}: ${spec.name} is ${expected}; ${JSON.stringify(value) ?? typeof value} was given`);
  const list = (values) => {
    if (!Array.isArray(values)) throw wrong("a list");
    return values;
  };
  const type = attributeTypes.indexOf(spec.type);
  view.setUint32(at, memory.text(spec.name), true);
  view.setUint32(at + 4, type, true);
  const whole = (x) => {
    if (typeof x !== "bigint" && !Number.isSafeInteger(x)) throw wrong("a whole number");
    return BigInt(x);
  };
  const integers = (values) => ({ at: memory.array(BigInt64Array, values.map(whole)), count: values.length });
  let given;
  switch (spec.type) {
    case "integer":
      return { integer: whole(value) };
    case "number":
      if (typeof value !== "number") throw wrong("a number");
      return { number: value };
    case "boolean":
      if (typeof value !== "boolean") throw wrong("true or false");
      return { boolean: value };
    case "integers":
      given = integers(typeof value === "number" ? [value] : list(value));
      return { integers: given.at, count: given.count };
    case "pairs":
      given = integers(list(value).flatMap((pair) => list(pair)));
      if (given.count % 2) throw wrong("a list of pairs");
      return { integers: given.at, count: given.count / 2 };
    case "numbers":
      return { numbers: memory.array(Float64Array, list(value)), count: value.length };
    default:
      if (typeof value !== "string") throw wrong("a text");
      return { word: memory.text(value) };
  }
}

const isAttributes = (value) => value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;

/** The function of a row: op(...inputs, {attributes}). */
export function makeOp(weft, row) {
  const { module } = weft;
  const specs = new Map(row.attributes.map((spec) => [spec.name, spec]));
  const op = (...values) => {
    const attributes = isAttributes(values.at(-1)) ? values.pop() : {};
    const flat = values.flat().map((each) => (each instanceof Variable ? each.value : each));
    const like = flat.find((each) => each instanceof Tensor);
    const inputs = flat.map((each) => {
      if (each == null) return null;
      if (each instanceof Tensor) return each;
      if (typeof each === "number" && like) return weft.full(each, [], { dtype: like.dtype, device: like.device });
      throw new WeftError("Usage", `${row.name}: an input is a tensor, or a number beside one; ${typeof each} was given`);
    });
    return module.scratch((memory) => {
      const names = Object.keys(attributes).filter((name) => attributes[name] !== undefined);
      const list = memory.allocate(attributeBytes * Math.max(names.length, 1));
      names.forEach((name, i) => {
        const spec = specs.get(name);
        if (!spec)
          throw new WeftError("Usage", `${row.name} has no attribute '${name}'; it has ${[...specs.keys()].join(", ") || "none"}`);
        const at = list + attributeBytes * i;
        module.bytes(at, attributeBytes).fill(0);
        const field = writeAttribute(memory, module.view(), at, spec, attributes[name], row.name);
        const view = module.view();
        if (field.integer !== undefined) view.setBigInt64(at + 8, field.integer, true);
        if (field.number !== undefined) view.setFloat64(at + 16, field.number, true);
        if (field.boolean !== undefined) view.setUint8(at + 24, field.boolean ? 1 : 0);
        view.setUint32(at + 28, field.integers ?? 0, true);
        view.setUint32(at + 32, field.count ?? 0, true);
        view.setUint32(at + 36, field.word ?? 0, true);
        view.setUint32(at + 40, field.numbers ?? 0, true);
      });
      const most = 64;
      const handles = memory.array(BigUint64Array, inputs.map((input) => input?.handle ?? 0n));
      const [results, count] = [memory.allocate(8 * most), memory.allocate(4)];
      module.call("weft_call", memory.text(row.name), handles, inputs.length, list, names.length, results, most, count);
      const made = weft.tensorsAt(results, module.view().getUint32(count, true));
      return row.several ? made : made[0];
    });
  };
  Object.defineProperty(op, "name", { value: row.name });
  return op;
}
