// Ops by name, compiled functions and files of the C interface.
#include <algorithm>
#include <cstring>

#include "base/quote.hpp"
#include "capi/guard.hpp"
#include "catalogue/op_values.hpp"
#include "graph/op.hpp"
#include "weft/custom_op.hpp"

using namespace weft;
using namespace weft::capi;

namespace {

graph::AttributeValue value_of(const weft_attribute& given) {
  const auto word = [&] { return std::string(required(given.word, "the word of an attribute")); };
  switch (given.type) {
    case WEFT_INTEGER: return Extent{given.integer};
    case WEFT_NUMBER: return given.number;
    case WEFT_BOOLEAN: {
      // Read as a byte: languages that write the struct themselves may store other values than 0 and 1.
      unsigned char byte = 0;
      std::memcpy(&byte, &given.boolean, 1);
      return byte != 0;
    }
    case WEFT_INTEGERS: {
      const std::span list = list_of(given.integers, given.count, "the integers of an attribute");
      return std::vector<Extent>(list.begin(), list.end());
    }
    case WEFT_PAIRS: {
      if (given.count > SIZE_MAX / 2) throw UsageError("too many pairs");
      const std::span list = list_of(given.integers, 2 * given.count, "the integers of an attribute");
      graph::Pairs pairs;
      for (std::size_t i = 0; i < list.size(); i += 2) pairs.emplace_back(list[i], list[i + 1]);
      return pairs;
    }
    case WEFT_NUMBERS: {
      const std::span list = list_of(given.numbers, given.count, "the numbers of an attribute");
      return graph::Numbers(list.begin(), list.end());
    }
    case WEFT_DTYPE: return dtype_named(given.word);
    case WEFT_CHOICE: return word();
  }
  throw UsageError(fmt::format("attribute {}: there is no type {}", quote(given.name), static_cast<int>(given.type)));
}

weft_attribute_type type_of(graph::AttributeType type) {
  switch (type) {
    case graph::AttributeType::integer: return WEFT_INTEGER;
    case graph::AttributeType::number: return WEFT_NUMBER;
    case graph::AttributeType::boolean: return WEFT_BOOLEAN;
    case graph::AttributeType::integers: return WEFT_INTEGERS;
    case graph::AttributeType::pairs: return WEFT_PAIRS;
    case graph::AttributeType::dtype: return WEFT_DTYPE;
    case graph::AttributeType::choice: return WEFT_CHOICE;
    case graph::AttributeType::numbers: return WEFT_NUMBERS;
  }
  return WEFT_NUMBER;
}

weft_op_info info_of(const graph::OpRow& row) {
  return {row.name.c_str(),  row.family.c_str(),    row.doc.c_str(),     row.formula.c_str(),
          row.inputs.size(), row.attributes.size(), row.several_outputs, row.differentiable};
}
template <class List>
const auto& element_of(const List& list, std::size_t index, const graph::OpRow& row, const char* what) {
  if (index >= list.size())
    throw UsageError(fmt::format("{} has {} {}, so none is {}", row.name, list.size(), what, index));
  return list[index];
}

}  // namespace

uint32_t weft_abi_version(void) { return WEFT_ABI_VERSION; }
const char* weft_version(void) { return WEFT_VERSION; }

weft_status weft_call(const char* op, const weft_tensor* inputs, size_t inputs_count, const weft_attribute* attributes,
                      size_t attributes_count, weft_tensor* results, size_t results_max, size_t* results_count) {
  return guarded([&] {
    required(results_count, "results_count");
    const graph::OpRow& row = graph::op_row(required(op, "op"));
    graph::Tensors operands;
    for (const weft_tensor each : list_of(inputs, inputs_count, "inputs")) operands.push_back(optional_tensor_of(each));
    while (!operands.empty() && !operands.back().defined()) operands.pop_back();
    graph::CaseAttributes values;
    for (const weft_attribute& each : list_of(attributes, attributes_count, "attributes"))
      values.emplace_back(required(each.name, "the name of an attribute"), value_of(each));
    write_results(graph::apply(row, std::move(operands), values), results, results_max, results_count);
  });
}

size_t weft_op_count(void) {
  size_t count = 0;
  guarded([&] { count = graph::op_rows().size(); });
  return count;
}
weft_status weft_op_at(size_t index, weft_op_info* info) {
  return guarded([&] {
    required(info, "info");
    const auto rows = graph::op_rows();
    if (index >= rows.size()) throw UsageError(fmt::format("there are {} ops, so none is {}", rows.size(), index));
    *info = info_of(*rows[index]);
  });
}
weft_status weft_op_find(const char* name, weft_op_info* info) {
  return guarded([&] { *required(info, "info") = info_of(graph::op_row(required(name, "name"))); });
}
weft_status weft_op_input(const char* op, size_t index, weft_input_info* info) {
  return guarded([&] {
    const graph::OpRow& row = graph::op_row(required(op, "op"));
    const graph::InputSpec& input = element_of(row.inputs, index, row, "inputs");
    *required(info, "info") = {input.name.c_str(), input.optional, input.repeated};
  });
}
weft_status weft_op_attribute(const char* op, size_t index, weft_attribute_info* info) {
  return guarded([&] {
    const graph::OpRow& row = graph::op_row(required(op, "op"));
    const graph::AttributeSpec& spec = element_of(row.attributes, index, row, "attributes");
    *required(info, "info") = {spec.name.c_str(), spec.doc.c_str(), type_of(spec.type), !spec.default_value};
  });
}
weft_status weft_op_attribute_default(const char* op, size_t index, const char** json) {
  return guarded([&] {
    required(json, "json");
    const graph::OpRow& row = graph::op_row(required(op, "op"));
    const graph::AttributeSpec& spec = element_of(row.attributes, index, row, "attributes");
    *json = keep_text(spec.default_value ? operations::value_of(*spec.default_value).to_json() : "null");
  });
}

weft_status weft_register_op(const char* name, const char* const* inputs, size_t inputs_count, const char* forward,
                             const char* const* gradients) {
  return guarded([&] {
    OpDefinition definition{.name = required(name, "name"), .inputs = {}, .forward = required(forward, "forward")};
    for (const char* input : list_of(inputs, inputs_count, "inputs"))
      definition.inputs.emplace_back(required(input, "the name of an input"));
    for (std::size_t i = 0; gradients && i < inputs_count; ++i)
      definition.gradients.emplace_back(required(gradients[i], "a gradient"));
    register_op(definition);
  });
}

weft_status weft_compile(weft_callback callback, void* context, weft_function* result) {
  return guarded([&] {
    required(result, "result");
    if (!callback) throw UsageError("callback is null");
    *result = {functions().add(Compiled([callback, context](std::span<const Tensor> given) {
      constexpr std::size_t kResultsMax = 1024;
      std::vector<weft_tensor> arguments, results(kResultsMax, weft_tensor{0});
      for (const Tensor& each : given) arguments.push_back(handle_of(each));
      std::size_t count = 0;
      weft_set_error_message("");
      const weft_status status =
          callback(context, arguments.data(), arguments.size(), results.data(), kResultsMax, &count);
      const std::string message = weft_error_message();
      for (const weft_tensor each : arguments) weft_tensor_release(each);
      if (status != WEFT_OK)
        throw CallbackError(
            fmt::format("the function that is compiled returned {}: {}", weft_status_name(status), message));
      if (count > kResultsMax) throw CallbackError(fmt::format("the function says that it has {} results", count));
      std::vector<Tensor> made;
      for (std::size_t i = 0; i < count; ++i) {
        made.push_back(tensor_of(results[i]));
        weft_tensor_release(results[i]);
      }
      return made;
    }))};
  });
}
weft_status weft_function_call(weft_function function, const weft_tensor* arguments, size_t count, weft_tensor* results,
                               size_t results_max, size_t* results_count) {
  return guarded([&] {
    required(results_count, "results_count");
    std::vector<Tensor> list;
    for (const weft_tensor each : list_of(arguments, count, "arguments")) list.push_back(tensor_of(each));
    write_results((*function_of(function))(list), results, results_max, results_count);
  });
}
weft_status weft_function_explain(weft_function function, bool source, const char** text) {
  return guarded([&] { *required(text, "text") = keep_text(function_of(function)->explain(source)); });
}

weft_status weft_load(const char* path, const char* device, weft_archive* result) {
  return guarded([&] {
    required(result, "result");
    const std::filesystem::path file = required(path, "path");
    const Device on = device_named(device);
    NamedTensors tensors;
    if (file.extension() == ".npy")
      tensors.emplace("array", load_npy(file, on));
    else if (file.extension() == ".npz")
      tensors = load_npz(file, on);
    else if (file.extension() == ".safetensors")
      tensors = load_safetensors(file, on).tensors;
    else if (file.extension() == ".gguf")
      tensors = load_gguf(file, on).tensors;
    else
      throw UsageError(fmt::format("{}: files end in .npy, .npz, .safetensors or .gguf", quote(path)));
    *result = {archives().add({std::move(tensors)})};
  });
}
weft_status weft_save(const char* path, const char* const* names, const weft_tensor* given, size_t count) {
  return guarded([&] {
    const std::filesystem::path file = required(path, "path");
    const std::span keys = list_of(names, count, "names");
    const std::span values = list_of(given, count, "tensors");
    NamedTensors tensors;
    for (std::size_t i = 0; i < count; ++i)
      if (!tensors.emplace(required(keys[i], "a name"), tensor_of(values[i])).second)
        throw UsageError(fmt::format("two tensors have the name {}", quote(keys[i])));
    if (file.extension() == ".npy") {
      if (count != 1) throw UsageError(fmt::format("a .npy file holds one tensor; {} are given", count));
      save_npy(file, tensors.begin()->second);
    } else if (file.extension() == ".npz") {
      save_npz(file, tensors);
    } else if (file.extension() == ".safetensors") {
      save_safetensors(file, tensors);
    } else if (file.extension() == ".gguf") {
      save_gguf(file, tensors);
    } else {
      throw UsageError(fmt::format("{}: files end in .npy, .npz, .safetensors or .gguf", quote(path)));
    }
  });
}
weft_status weft_archive_count(weft_archive archive, size_t* count) {
  return guarded([&] { *required(count, "count") = archive_of(archive)->tensors.size(); });
}
weft_status weft_archive_at(weft_archive archive, size_t index, const char** name, weft_tensor* tensor) {
  return guarded([&] {
    required(name, "name");
    required(tensor, "tensor");
    const auto object = archive_of(archive);
    if (index >= object->tensors.size())
      throw UsageError(fmt::format("the file has {} tensors, so none is {}", object->tensors.size(), index));
    const auto found = std::next(object->tensors.begin(), static_cast<std::ptrdiff_t>(index));
    *tensor = handle_of(found->second);
    *name = found->first.c_str();
  });
}
weft_status weft_archive_find(weft_archive archive, const char* name, weft_tensor* tensor) {
  return guarded([&] {
    required(tensor, "tensor");
    const auto object = archive_of(archive);
    const auto found = object->tensors.find(required(name, "name"));
    if (found == object->tensors.end()) throw UsageError(fmt::format("the file has no tensor {}", quote(name)));
    *tensor = handle_of(found->second);
  });
}
