// files: what is in granted folders.
#include "base/utf8.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "weft/io.hpp"

namespace weft::script {
namespace {

std::string path_of(Engine& engine, Arguments arguments) {
  if (!JS_IsString(at(arguments, 0)))
    Engine::refuse("files", "the path is " + inspect(engine, at(arguments, 0)) + ", not a text");
  return engine.text(arguments[0]);
}

Local read_text(Engine& engine, JSValueConst, Arguments arguments) {
  return engine.string(engine.files->read(path_of(engine, arguments)));
}
Local read_file(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string bytes = engine.files->read(path_of(engine, arguments));
  return typed_array(engine, DType::u8, std::as_bytes(std::span(bytes)));
}
Local write_text(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string path = path_of(engine, arguments);
  engine.files->write(path, engine.text(at(arguments, 1)));
  return {};
}
Local write_file(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string path = path_of(engine, arguments);
  const std::vector<std::byte> bytes = bytes_of_buffer(engine, at(arguments, 1), "files.write: the bytes");
  engine.files->write(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return {};
}
Local list_files(Engine& engine, JSValueConst, Arguments arguments) {
  Local list = engine.array();
  std::uint32_t i = 0;
  for (const std::string& name : engine.files->list(path_of(engine, arguments)))
    engine.set(list.get(), i++, engine.string(name));
  return list;
}
Local file_exists(Engine& engine, JSValueConst, Arguments arguments) {
  return {engine.context, JS_NewBool(engine.context, engine.files->exists(path_of(engine, arguments)))};
}
Local remove_file(Engine& engine, JSValueConst, Arguments arguments) {
  engine.files->remove(path_of(engine, arguments));
  return {};
}

Local named_tensors(Engine& engine, const NamedTensors& tensors) {
  Local object = engine.object();
  for (const auto& [name, tensor] : tensors) engine.set(object.get(), name.c_str(), engine.make(tensor));
  return object;
}

// load(path): a tensor of a .npy file; {name: tensor} of .npz, .safetensors and .gguf files.
Local load_tensors(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string path = path_of(engine, arguments);
  const std::filesystem::path suffix = std::filesystem::path(path).extension();
  const Descriptor file = engine.files->open(engine.files->place(path, false));
  if (suffix == ".npy") return engine.make(load_npy(file.path()));
  if (suffix == ".npz") return named_tensors(engine, load_npz(file.path()));
  if (suffix == ".safetensors") return named_tensors(engine, load_safetensors(file.path()).tensors);
  if (suffix == ".gguf") return named_tensors(engine, load_gguf(file.path()).tensors);
  Engine::refuse("files.load", "the suffix is none of .npy, .npz, .safetensors, .gguf");
}

Local save_tensors(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string path = path_of(engine, arguments);
  const std::filesystem::path suffix = std::filesystem::path(path).extension();
  NamedTensors tensors;
  const JSValueConst given = at(arguments, 1);
  const Tensor one = engine.tensor_or_none(given);
  if (suffix == ".npy" ? !one.defined() : !engine.is_plain_object(given))
    Engine::refuse("files.save", "a .npy file takes a tensor, .npz and .safetensors take {name: tensor}");
  if (!one.defined()) {
    for (const std::string& key : engine.names(given))
      tensors.emplace(key, engine.tensor(engine.property(given, key.c_str()).get(), key));
  }
  engine.files->save(path, [&](const std::filesystem::path& file) {
    if (suffix == ".npy")
      save_npy(file, one);
    else if (suffix == ".npz")
      save_npz(file, tensors);
    else if (suffix == ".safetensors")
      save_safetensors(file, tensors);
    else
      Engine::refuse("files.save", "the suffix is none of .npy, .npz, .safetensors");
  });
  return {};
}

}  // namespace

void define_files(Engine& engine) {
  Local space = engine.object();
  engine.method(space.get(), "readText", native<read_text>, 1);
  engine.method(space.get(), "read", native<read_file>, 1);
  engine.method(space.get(), "writeText", native<write_text>, 2);
  engine.method(space.get(), "write", native<write_file>, 2);
  engine.method(space.get(), "list", native<list_files>, 1);
  engine.method(space.get(), "exists", native<file_exists>, 1);
  engine.method(space.get(), "remove", native<remove_file>, 1);
  engine.method(space.get(), "load", native<load_tensors>, 1);
  engine.method(space.get(), "save", native<save_tensors>, 2);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "files", std::move(space));
}

}  // namespace weft::script
