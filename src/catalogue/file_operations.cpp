// Files of tensors, checkpoints and data sets as operations. Paths must be inside folders that the catalogue's owner has
// allowed. A file of weights is a resource, weights:PATH.
#include <fmt/format.h>

#include "base/file.hpp"
#include "catalogue/families.hpp"
#include "metatensor/source.hpp"
#include "weft/error.hpp"
#include "weft/io.hpp"
#include "weft/train/checkpoint.hpp"
#include "weft/train/text.hpp"

namespace weft::operations {
namespace {

const DeclaredError kFileErrorRow{"FILE_ERROR", "a file that is missing, cannot be read or written, or is damaged"};

template <class Function>
auto with_file_errors(const Function& function) {
  try {
    return function();
  } catch (const FileError& error) {
    throw OperationError("FILE_ERROR", error.what());
  }
}

Value shape_value(const Shape& shape) { return Value::Array(shape.begin(), shape.end()); }

Value list_weights(const std::filesystem::path& path) {
  const io::TensorSource source = metatensor::open_source(path);
  Value::Array tensors;
  for (const io::SourceTensor& tensor : source.tensors())
    tensors.push_back(Value::object({{"name", tensor.name},
                                     {"type", tensor.type_name},
                                     {"shape", shape_value(tensor.shape)},
                                     {"bytes", tensor.data.size()}}));
  return Value::object({{"tensors", std::move(tensors)}});
}

Tensor read_weights(const std::filesystem::path& path, const std::string& name) {
  const io::TensorSource source = metatensor::open_source(path);
  const io::SourceTensor& tensor = source.at(name);
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  source.read_f32(tensor, values);
  return weft::tensor<float>(std::span<const float>(values), tensor.shape);
}

Value describe_checkpoint(const std::filesystem::path& path) {
  const train::Checkpoint checkpoint = train::load_checkpoint(path);
  Extent parameters = 0;
  Value::Array tensors;
  for (const auto& array : checkpoint.model) {
    parameters += array.shape.numel();
    tensors.push_back(Value::object({{"name", array.name}, {"shape", shape_value(array.shape)}}));
  }
  return Value::object({{"step", checkpoint.step},
                        {"seconds", checkpoint.elapsed_seconds},
                        {"best_loss", checkpoint.best_loss ? finite_or_null(*checkpoint.best_loss) : Value()},
                        {"best_step", checkpoint.best_step},
                        {"parameters", parameters},
                        {"vocabulary", checkpoint.vocabulary.size()},
                        {"resumable", !checkpoint.optimizer.empty()},
                        {"config", Value::parse(train::to_json(checkpoint.config), path.string())},
                        {"tensors", std::move(tensors)}});
}

Value describe_dataset(const std::filesystem::path& path, const std::string& vocabulary) {
  const train::TextData data = train::TextData::load(path, train::alphabet_kind(vocabulary), 1);
  return Value::object({{"tokens", data.tokens.size()},
                        {"training", data.training_count},
                        {"validation", data.tokens.size() - data.training_count},
                        {"vocabulary", data.vocabulary.size()},
                        {"hash", fmt::format("{:016x}", data.content_hash)}});
}

}  // namespace

void add_file_operations(Registry& registry, const CatalogueOptions& options) {
  const Value path = schema_of(
      R"({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {"path": {"type": "string"}}})");
  const auto weights_access = [](const char* scope, const char* action) {
    return Access{.scopes = {scope}, .resource_type = "weights", .resource_action = action, .resource_input = "path"};
  };
  registry.add({.space = "weights",
                .name = "list",
                .title = "list weights",
                .description = "The tensors of a GGUF, safetensors or metatensor file, or of a model's folder.",
                .input = path,
                .errors = {kFileErrorRow},
                .access = weights_access("files:read", "read")},
               [options](Context& call) {
                 return with_file_errors(
                     [&] { return list_weights(allowed_path(options, call.input("path").string(), false)); });
               });
  registry.add(
      {.space = "weights",
       .name = "read",
       .title = "read weights",
       .description = "A tensor of a model's files, as f32.",
       .input = schema_of(R"({"type": "object", "required": ["path", "name"], "additionalProperties": false,
                  "properties": {"path": {"type": "string"}, "name": {"type": "string"}}})"),
       .output = schema_of(R"({"type": "object", "properties": {"tensor": {"x-tensor": {"dtypes": ["f32"]}}}})"),
       .errors = {kFileErrorRow},
       .access = weights_access("files:read", "read")},
      [options](Context& call) {
        return with_file_errors([&] {
          return Value::object({{"tensor", read_weights(allowed_path(options, call.input("path").string(), false),
                                                        call.input("name").string())}});
        });
      });
  registry.add({.space = "weights",
                .name = "write",
                .kind = Kind::mutation,
                .title = "write weights",
                .description = "Writes tensors to a safetensors file, whole or not at all.",
                .input = schema_of(R"({"type": "object", "required": ["path", "tensors"], "additionalProperties": false,
                  "properties": {"path": {"type": "string"}, "tensors": {"type": "object", "minProperties": 1, "additionalProperties": {"x-tensor": true}}}})"),
                .errors = {kFileErrorRow},
                .access = weights_access("files:write", "write")},
               [options](Context& call) {
                 NamedTensors tensors;
                 for (const auto& [name, tensor] : call.input("tensors").members())
                   tensors.emplace(name, tensor.tensor());
                 with_file_errors([&] {
                   save_safetensors(allowed_path(options, call.input("path").string(), true), tensors);
                   return 0;
                 });
                 return Value(Value::Object());
               });
  registry.add({.space = "checkpoint",
                .name = "describe",
                .title = "describe a checkpoint",
                .description = "Step, losses, configuration and tensors of a training run's checkpoint.",
                .input = path,
                .errors = {kFileErrorRow},
                .access = {.scopes = {"files:read"}}},
               [options](Context& call) {
                 return with_file_errors(
                     [&] { return describe_checkpoint(allowed_path(options, call.input("path").string(), false)); });
               });
  registry.add(
      {.space = "dataset",
       .name = "describe",
       .title = "describe a data set",
       .description = "Tokens, split and vocabulary of a text as training sees it.",
       .input = schema_of(
           R"({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {"path": {"type": "string"},
                  "vocabulary": {"enum": ["char", "byte"], "default": "char"}}})"),
       .errors = {kFileErrorRow},
       .access = {.scopes = {"files:read"}}},
      [options](Context& call) {
        return with_file_errors([&] {
          return describe_dataset(allowed_path(options, call.input("path").string(), false),
                                  call.input("vocabulary").string());
        });
      });
}

}  // namespace weft::operations
