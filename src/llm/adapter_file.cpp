#include "llm/adapter_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "llm/adapter_contents.hpp"
#include "llm/adapter_experts.hpp"
#include "llm/adapter_tensors.hpp"
#include "llm/constant_values.hpp"
#include "llm/convert.hpp"
#include "llm/convert_values.hpp"
#include "llm/weights.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

// ---- Writing ---------------------------------------------------------------------------------------------------------

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

bool is_of_experts(const ModuleChange& change) { return change.experts > 0; }

/// PEFT wraps a module of experts once for each of its parameters, the inner time for gates and ups if both change.
std::string wrapped_experts(const std::string& module, bool wraps_both) {
  const std::size_t dot = module.rfind('.');
  const bool is_inner = wraps_both && module.substr(dot + 1) == kGateUp;
  return module.substr(0, dot) + (is_inner ? ".base_layer" : "");
}

/// The last part of a module's name, by which PEFT finds it.
std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

/// The rank that most modules have.
Extent usual_rank(const ModuleChanges& modules) {
  std::map<Extent, int> counts;
  for (const auto& [module, change] : modules) ++counts[change.rank];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}
double alpha_of(const ModuleChange& change) { return change.scale * static_cast<double>(change.rank); }

/// Files of GPT-2 leave out the name of the part that holds the layers.
std::string name_in_model(const std::string& module) {
  for (const char* first : {"h.", "wte", "wpe", "ln_f"})
    if (module.starts_with(first)) return "transformer." + module;
  return module;
}

void write_folder(const fs::path& folder, ModuleChanges modules, const ModelGraph& form, const AdapterNotes& notes) {
  const auto has_magnitude = [](const auto& module) { return !module.second.magnitude.empty(); };
  const bool with_magnitudes = std::any_of(modules.begin(), modules.end(), has_magnitude);
  if (with_magnitudes && !std::all_of(modules.begin(), modules.end(), has_magnitude))
    throw FileError(fmt::format(
        "{}: some matrices have magnitudes and others have none, which a folder of PEFT cannot say", folder.string()));
  if (with_magnitudes &&
      std::any_of(modules.begin(), modules.end(), [](const auto& m) { return is_of_experts(m.second); }))
    throw FileError(fmt::format("{}: changes of experts beside magnitudes (dora), which a folder of PEFT cannot say",
                                folder.string()));
  const Extent rank = usual_rank(modules);
  const double alpha = alpha_of(
      std::find_if(modules.begin(), modules.end(), [&](const auto& m) { return m.second.rank == rank; })->second);
  Json ranks = Json::object(), alphas = Json::object();
  std::set<std::string> parts, parameters;
  for (const auto& [module, change] : modules)
    if (is_of_experts(change)) parameters.insert("experts." + last_part(module));
  std::vector<io::TensorView> tensors;
  bool is_transposed = false;
  const auto targets = module_targets(form);
  for (auto& [module, change] : modules) {
    if (!is_of_experts(change)) {
      parts.insert(last_part(module));
      is_transposed = is_transposed || targets.find(module)->second.transposed;
    }
    if (change.rank != rank) ranks[module] = change.rank;
    if (alpha_of(change) != alpha) alphas[module] = alpha_of(change);
    const std::string name =
        fmt::format("{}{}", kAdapterPrefix,
                    name_in_model(is_of_experts(change) ? wrapped_experts(module, parameters.size() > 1) : module));
    if (is_of_experts(change)) unstack_experts(change);
    tensors.push_back({name + ".lora_A.weight", "F32", {change.rank, change.in}, bytes_of(change.a)});
    tensors.push_back({name + ".lora_B.weight", "F32", {change.out, change.rank}, bytes_of(change.b)});
    if (with_magnitudes)
      tensors.push_back({name + ".lora_magnitude_vector", "F32", {change.out}, bytes_of(change.magnitude)});
  }
  std::set<std::string> saved;
  for (const SavedTensor& tensor : notes.saved) {
    saved.insert(last_part(tensor.key.substr(0, tensor.key.rfind('.'))));
    tensors.push_back(
        {fmt::format("{}{}", kAdapterPrefix, name_in_model(tensor.key)), "F32", tensor.shape, bytes_of(tensor.values)});
  }
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", notes.base},
                       {"r", rank},
                       {"lora_alpha", alpha},
                       {"lora_dropout", notes.dropout},
                       {"target_modules", parts},
                       {"target_parameters", parameters.empty() ? Json() : Json(parameters)},
                       {"bias", "none"},
                       {"fan_in_fan_out", is_transposed},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"modules_to_save", saved.empty() ? Json() : Json(saved)},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas},
                       {"use_rslora", false},
                       {"use_dora", with_magnitudes}};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw FileError(fmt::format("{}: the folder cannot be made: {}; choose another place, or change the permissions",
                                folder.string(), error.message()));
  io::write_safetensors(folder / kAdapterWeights, tensors, {{"format", "pt"}});
  write_file_atomically(folder / kAdapterConfig, config.dump(2) + "\n");
}

void write_gguf(const fs::path& file, const ModuleChanges& modules, const ModelGraph& form, const AdapterNotes& notes) {
  for (const auto& [module, change] : modules)
    if (!change.magnitude.empty())
      throw FileError(fmt::format(
          "{}: GGUF files of adapters have no place for magnitudes (dora); write a folder, or merge the adapter "
          "into its model (weft convert --adapter)",
          file.string()));
  if (!notes.saved.empty())
    throw FileError(
        fmt::format("{}: GGUF files of adapters have no place for whole tensors such as {}; write a folder, or merge "
                    "the adapter into "
                    "its model (weft convert --adapter)",
                    file.string(), notes.saved[0].key));
  const double alpha = alpha_of(modules.begin()->second);
  io::GgufMetadata metadata;
  metadata.set("general.architecture", form.config.architecture);
  metadata.set("general.type", std::string("adapter"));
  metadata.set("general.name", fmt::format("adapter of {}", fs::path(notes.base).filename().string()));
  metadata.set("adapter.type", std::string("lora"));
  metadata.set("adapter.lora.alpha", static_cast<float>(alpha));
  std::vector<io::GgufTensorInfo> infos;
  std::vector<std::vector<float>> values;
  for (const auto& [module, change] : modules) {
    // There is one alpha, which readers divide by the rank of each pair.
    std::vector<float> b = change.b;
    if (alpha_of(change) != alpha)
      for (float& value : b) value = static_cast<float>(value * (alpha_of(change) / alpha));
    const auto shape = [&](Extent rows, Extent columns) {
      return is_of_experts(change) ? Shape{change.experts, rows, columns} : Shape{rows, columns};
    };
    infos.push_back({module + ".weight.lora_a", shape(change.rank, change.in), BlockType::f32});
    infos.push_back({module + ".weight.lora_b", shape(change.out, change.rank), BlockType::f32});
    values.push_back(change.a);
    values.push_back(std::move(b));
  }
  io::GgufWriter writer(file, metadata, std::move(infos));
  for (const std::vector<float>& each : values) writer.write(bytes_of(each));
  writer.commit();
}

/// A matrix of a file with its gain, and with B A added as the file holds it.
void change_values(std::vector<float>& values, const Shape& shape, const ModuleChange& change, bool transposed) {
  const Tensor a = tensor_from_bytes(change.a.data(), {change.rank, change.in}, DType::f32, kCpu),
               b = tensor_from_bytes(change.b.data(), {change.out, change.rank}, DType::f32, kCpu),
               product = matmul(b, a) * change.scale;
  Tensor whole = tensor_from_bytes(values.data(), shape, DType::f32, kCpu);
  if (!change.gain.empty()) {
    const Tensor gain = tensor_from_bytes(change.gain.data(), {change.out}, DType::f32, kCpu);
    whole = whole * reshape(gain, transposed ? Shape{1, change.out} : Shape{change.out, 1});
  }
  values = (whole + reshape(transposed ? transpose(product) : product, shape)).to_vector<float>();
}

}  // namespace

std::vector<LowRank> read_adapter(const fs::path& path, double scale, const ModelGraph& graph) {
  const AdapterContents contents = read_contents(path, scale);
  const bool is_same_kind = contents.is_folder != graph.config.from_gguf;
  return changes_of(contents.modules, graph, is_same_kind ? graph : graph_of_other_kind(graph), path.string());
}

void write_adapter(const fs::path& path, const std::vector<LowRank>& changes, const ModelGraph& graph,
                   const AdapterNotes& notes) {
  if (changes.empty()) throw InternalError("llm: an adapter without changes");
  const bool to_gguf = path.extension() == ".gguf";
  const ModelGraph form = to_gguf == graph.config.from_gguf ? graph : graph_of_other_kind(graph);
  ModuleChanges modules = modules_of(changes, graph, form);
  modules.merge(expert_modules_of(changes, form));
  if (to_gguf)
    write_gguf(path, modules, form, notes);
  else
    write_folder(path, std::move(modules), form, notes);
}

io::TensorSource merged(const io::TensorSource& given, const std::vector<LowRank>& changes, const ModelGraph& graph) {
  const io::TensorSource source =
      with_added_values(given, graph, [changes, graph](const std::string& constant, Extent first, Extent count) {
        return expert_deltas(changes, graph, constant, first, count);
      });
  const auto modules = std::make_shared<const ModuleChanges>(modules_of(changes, graph, graph));
  const auto targets = module_targets(graph);
  const TensorNames names(source);
  const auto base = std::make_shared<const io::TensorSource>(source);
  std::vector<io::SourceTensor> tensors = source.tensors();
  for (const auto& [module, change] : *modules) {
    const io::SourceTensor* found = names.find(module + ".weight");
    if (!found)
      throw FileError(
          fmt::format("{}: the adapter changes {}, which is the table of tokens too; use the adapter beside the model",
                      source.path().string(), quote(module, 120)));
    const bool transposed = targets.find(module)->second.transposed;
    tensors[static_cast<std::size_t>(found - source.tensors().data())] =
        edited(base, *found, [modules, module, shape = found->shape, transposed](std::vector<float>& values) {
          change_values(values, shape, modules->at(module), transposed);
        });
  }
  return source.with_tensors(std::move(tensors));
}

}  // namespace weft::llm
