// metatensor: safetensors files with a schema, read and written in granted folders.
#include <fmt/format.h>

#include <set>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "weft/metatensor.hpp"

namespace weft::script {
namespace {

/// An open file. The mapping stays as long as the handle, and as tensors that use it.
struct MetatensorHandle final : Handle {
  MetatensorHandle(Engine& engine, metatensor::File file) : Handle(engine), file(std::move(file)) {}
  std::string_view kind() const override { return "metatensor file"; }
  metatensor::File file;
};

const metatensor::File& file_of(Engine& engine, JSValueConst self) {
  auto* const handle =
      static_cast<MetatensorHandle*>(static_cast<Handle*>(JS_GetOpaque(self, engine.metatensor_class)));
  if (!handle) Engine::refuse("metatensor", inspect(engine, self) + " is not a file of metatensor.open");
  return handle->file;
}
std::uint64_t count_at(Engine& engine, JSValueConst value, const char* what) {
  const Extent number = engine.integer(value, what);
  if (number < 0) Engine::refuse("metatensor", fmt::format("{} is {}; it is 0 or more", what, number));
  return static_cast<std::uint64_t>(number);
}

// ---- Reading --------------------------------------------------------------------------------------------------------------------

Local open_file(Engine& engine, JSValueConst, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  engine.check_handles();
  Local made = engine.checked(JS_NewObjectClass(engine.context, static_cast<int>(engine.metatensor_class)));
  JS_SetOpaque(made.get(), static_cast<Handle*>(new MetatensorHandle(engine, metatensor::File::open(file.path()))));
  return made;
}
Local file_schema(Engine& engine, JSValueConst self, Arguments) {
  return value_to(engine, metatensor::to_value(file_of(engine, self).schema()));
}
Local file_metadata(Engine& engine, JSValueConst self, Arguments) {
  Local object = engine.object();
  for (const auto& [key, text] : file_of(engine, self).metadata())
    engine.set(object.get(), key.c_str(), engine.string(text));
  return object;
}
Local file_paths(Engine& engine, JSValueConst self, Arguments) {
  Local list = engine.array();
  std::uint32_t i = 0;
  for (const std::string& path : file_of(engine, self).paths()) engine.set(list.get(), i++, engine.string(path));
  return list;
}
// count(path): records, or entries of a blob.
Local file_count(Engine& engine, JSValueConst self, Arguments arguments) {
  return {engine.context,
          JS_NewInt64(engine.context,
                      static_cast<std::int64_t>(file_of(engine, self).at(engine.text(at(arguments, 0))).count))};
}
Local file_tensor(Engine& engine, JSValueConst self, Arguments arguments) {
  return engine.make(file_of(engine, self).tensor(engine.text(at(arguments, 0))));
}
// column(path, field, first, count): the field of records as one tensor.
Local file_column(Engine& engine, JSValueConst self, Arguments arguments) {
  const metatensor::File& file = file_of(engine, self);
  const std::string path = engine.text(at(arguments, 0));
  const std::uint64_t first =
      JS_IsUndefined(at(arguments, 2)) ? 0 : count_at(engine, arguments[2], "column: the first record");
  const std::uint64_t all = file.at(path).count;
  const std::uint64_t count = JS_IsUndefined(at(arguments, 3)) ? all - std::min(all, first)
                                                               : count_at(engine, arguments[3], "column: the count");
  return engine.make(file.column(path, engine.text(at(arguments, 1)), first, count));
}
Local file_record(Engine& engine, JSValueConst self, Arguments arguments) {
  return value_to(engine,
                  file_of(engine, self)
                      .record(engine.text(at(arguments, 0)), count_at(engine, at(arguments, 1), "record: the index"))
                      .value());
}
Local file_bytes(Engine& engine, JSValueConst self, Arguments arguments) {
  const std::span<const std::byte> bytes = file_of(engine, self).bytes(engine.text(at(arguments, 0)));
  engine.check_host_bytes(bytes.size());
  return typed_array(engine, DType::u8, bytes);
}
// validate(path): [{code, byte, name, message}]
Local validate_file(Engine& engine, JSValueConst, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  Value::Array list;
  for (const FormatViolation& each : metatensor::validate(file.path()))
    list.push_back(
        Value::object({{"code", each.code}, {"byte", each.byte}, {"name", each.name}, {"message", each.message}}));
  return value_to(engine, list);
}
// difference(older, newer): [{kind, path, before, after}]
Local schema_difference(Engine& engine, JSValueConst, Arguments arguments) {
  constexpr const char* kKinds[] = {"added", "removed", "changed"};
  Value::Array list;
  for (const metatensor::Change& each :
       metatensor::difference(metatensor::node_from(value_from(engine, at(arguments, 0))),
                              metatensor::node_from(value_from(engine, at(arguments, 1)))))
    list.push_back(Value::object({{"kind", kKinds[static_cast<int>(each.kind)]},
                                  {"path", each.path},
                                  {"before", each.before},
                                  {"after", each.after}}));
  return value_to(engine, list);
}
// schemaOf(element): the schema of a component tree.
Local schema_of_elements(Engine& engine, JSValueConst, Arguments arguments) {
  return value_to(engine, metatensor::to_value(metatensor::node_from_elements(tree_from(engine, at(arguments, 0)))));
}

// ---- Writing --------------------------------------------------------------------------------------------------------------------

std::string entry_of(Engine& engine, JSValueConst value) {
  if (JS_IsString(value)) return engine.text(value);
  const std::vector<std::byte> bytes = bytes_of_buffer(engine, value, "metatensor.save: an entry of a blob");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_records(Engine& engine, metatensor::Writer& writer, const std::string& path, JSValueConst given) {
  Options options(engine, given, "metatensor.save: records");
  const Local layout = options.value("layout"), values = options.value("values");
  const bool packed = options.boolean("packed", false);
  options.finish();
  std::vector<Value> list;
  const std::uint32_t count = engine.length(values.get(), "metatensor.save: the values of records");
  for (std::uint32_t i = 0; i < count; ++i) list.push_back(value_from(engine, engine.element(values.get(), i).get()));
  writer.records(
      path,
      typedefs::Layout(value_from(engine, layout.get()), packed ? typedefs::Mode::packed : typedefs::Mode::aligned),
      list);
}

// save(path, {tensors: {PATH: tensor}, records: {PATH: {layout, values, packed}}, blobs: {PATH: [...]}, optional: [PATH], metadata})
Local save_file(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "metatensor.save");
  const Local tensors = options.value("tensors"), records = options.value("records"), blobs = options.value("blobs"),
              optional = options.value("optional"), metadata = options.value("metadata");
  options.finish();
  metatensor::Writer writer;
  const auto each = [&](const Local& members, const auto& add) {
    if (engine.is_nullish(members.get())) return;
    for (const std::string& name : engine.names(members.get())) add(name, engine.property(members.get(), name.c_str()));
  };
  each(tensors,
       [&](const std::string& path, const Local& value) { writer.tensor(path, engine.tensor(value.get(), path)); });
  each(records, [&](const std::string& path, const Local& value) { add_records(engine, writer, path, value.get()); });
  each(blobs, [&](const std::string& path, const Local& value) {
    std::vector<std::string> entries;
    const std::uint32_t count = engine.length(value.get(), "metatensor.save: a blob");
    for (std::uint32_t i = 0; i < count; ++i) entries.push_back(entry_of(engine, engine.element(value.get(), i).get()));
    writer.blob(path, entries);
  });
  if (!engine.is_nullish(optional.get())) {
    const std::uint32_t count = engine.length(optional.get(), "metatensor.save: optional");
    for (std::uint32_t i = 0; i < count; ++i) writer.optional(engine.text(engine.element(optional.get(), i).get()));
  }
  each(metadata, [&](const std::string& key, const Local& value) { writer.metadata(key, engine.text(value.get())); });
  engine.files->save(engine.text(at(arguments, 0)), [&](const std::filesystem::path& file) { writer.save(file); });
  return {};
}

}  // namespace

void define_metatensor(Engine& engine) {
  const Local prototype = engine.make_class(engine.metatensor_class, "MetatensorFile");
  const JSValueConst p = prototype.get();
  engine.getter(p, "schema", native<file_schema>);
  engine.getter(p, "metadata", native<file_metadata>);
  engine.getter(p, "paths", native<file_paths>);
  engine.method(p, "count", native<file_count>, 1);
  engine.method(p, "tensor", native<file_tensor>, 1);
  engine.method(p, "column", native<file_column>, 2);
  engine.method(p, "record", native<file_record>, 2);
  engine.method(p, "bytes", native<file_bytes>, 1);
  Local space = engine.object();
  engine.method(space.get(), "open", native<open_file>, 1);
  engine.method(space.get(), "validate", native<validate_file>, 1);
  engine.method(space.get(), "difference", native<schema_difference>, 2);
  engine.method(space.get(), "schemaOf", native<schema_of_elements>, 1);
  engine.method(space.get(), "save", native<save_file>, 2);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "metatensor", std::move(space));
}

}  // namespace weft::script
