// Writes ops.d.ts, the types of the functions of ops and of the options of optimisers, from the tables of a module:
// node write_ops_types.mjs PACKAGE_FOLDER.
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const { load } = await import(pathToFileURL(`${folder}/index.js`));
const weft = await load();

const types = {
  integer: "number | bigint",
  number: "number",
  boolean: "boolean",
  integers: "number[] | number",
  pairs: "[number, number][]",
  dtype: "DType",
  choice: "string",
  numbers: "number[]",
};
const comment = (text, indent) => `${indent}/** ${text.replaceAll("*/", "* /").replaceAll("\n", " ")} */\n`;
const parameterOf = (canLeaveOut) => ({ name, optional, repeated }, index, all) => {
  const safe = /^(in|default|new|var|if|function|with|case|for|while)$/.test(name) ? `${name}_` : name;
  if (repeated) return `${safe}${optional ? "?" : ""}: (Tensor | number)[]`;
  if (!optional) return `${safe}: Tensor | number`;
  // An optional input before what is required is given as null.
  const isLast = canLeaveOut && all.slice(index + 1).every((each) => each.optional);
  return `${safe}${isLast ? "?" : ""}: Tensor | number | null`;
};
const declare = (row, inputs, indent) => {
  const needed = row.attributes.some((each) => each.required);
  const fields = row.attributes.map(({ name, type, required }) => `${JSON.stringify(name)}${required ? "" : "?"}: ${types[type]}`);
  const attributes = fields.length > 0 ? [`attributes${needed ? "" : "?"}: { ${fields.join("; ")} }`] : [];
  const result = row.several ? "Tensor[]" : "Tensor";
  const signature = (given) => `${indent}${row.name}(${[...given, ...attributes].join(", ")}): ${result};\n`;
  const all = comment(row.doc, indent) + signature(inputs.map(parameterOf(!needed)));
  // The attributes may come where inputs are left out.
  const hasOptional = inputs.some((each) => each.optional);
  return fields.length > 0 && hasOptional ? all + signature(inputs.filter((each) => !each.optional).map(parameterOf(true))) : all;
};

const own = new Set(["shape", "dtype", "device", "evaluate", "data", "item", "to", "text", "dispose", "handle", "weft"]);
const methods = weft.table.filter((row) => row.inputs.length > 0 && !row.inputs[0].repeated && !own.has(row.name));
let text = "// Made by write_ops_types.mjs from the table of ops.\nimport type { DType, Tensor } from \"./index.js\";\n\n";
text += "export interface Ops {\n" + weft.table.map((row) => declare(row, row.inputs, "  ")).join("") + "}\n\n";
text += "export interface TensorOps {\n" + methods.map((row) => declare(row, row.inputs.slice(1), "  ")).join("") + "}\n";
const option = ({ name, standard, doc }) => comment(`${doc}; ${standard} if it is left out`, "    ") + `    ${name}?: ${typeof standard};\n`;
text += "\nexport interface Optimizers {\n";
for (const { title, doc, options } of weft.optimizers) text += comment(doc, "  ") + `  ${title}: {\n${options.map(option).join("")}  };\n`;
text += "}\n";
writeFileSync(`${folder}/ops.d.ts`, text);
