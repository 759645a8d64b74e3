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
#include "llm/adapter_modules.hpp"
#include "llm/convert.hpp"
#include "llm/convert_values.hpp"
#include "llm/weights.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "adapter_config.json", kWeights = "adapter_model.safetensors",
                           kBefore = "base_model.model.";
constexpr Extent kRankMax = 4096;

[[noreturn]] void refuse(const std::string& source, const std::string& fact) {
  throw FileError(fmt::format("{}: {}", source, fact));
}

/// A pair of matrices as a file has them, and by what it multiplies them.
struct Found {
  const io::SourceTensor *a = nullptr, *b = nullptr, *magnitude = nullptr;
  std::optional<double> alpha = {};
};

/// Drops `ending` from the name if it has it.
bool drop_ending(std::string_view& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return true;
}

ModuleChanges read_pairs(const io::TensorSource& source, const std::map<std::string, Found>& pairs, double scale,
                         const std::function<double(const std::string& module, Extent rank)>& factor) {
  ModuleChanges modules;
  for (const auto& [module, found] : pairs) {
    const std::string where = source.path().string();
    if (!found.a || !found.b)
      refuse(where, fmt::format("{} has one of its two matrices; is the file whole?", quote(module, 120)));
    const Shape &a = found.a->shape, &b = found.b->shape;
    if (a.rank() != 2 || b.rank() != 2 || a[0] != b[1] || a[0] < 1 || a[0] > kRankMax)
      refuse(where, fmt::format("{}: matrices {} and {} are not [rank, in] and [out, rank] with a rank of 1 to {}",
                                quote(module, 120), a.to_string(), b.to_string(), kRankMax));
    const auto values = [&](const io::SourceTensor& tensor) {
      const io::LoadedTensor loaded = io::TensorSource::loaded(tensor);
      source.require_finite(loaded.tensor);
      std::vector<float> read(static_cast<std::size_t>(tensor.shape.numel()));
      source.read_f32(loaded.tensor, read);
      return read;
    };
    ModuleChange change{a[0], a[1], b[0], values(*found.a), values(*found.b)};
    change.scale = factor(module, a[0]);
    if (found.magnitude) {
      if (found.magnitude->shape != Shape{b[0]})
        refuse(where, fmt::format("{}: magnitudes {} of a matrix with {} rows", quote(module, 120),
                                  found.magnitude->shape.to_string(), b[0]));
      change.magnitude = values(*found.magnitude);
      change.strength = scale;
    } else {
      change.scale *= scale;
    }
    modules.emplace(module, std::move(change));
  }
  return modules;
}

// ---- Folders of PEFT -------------------------------------------------------------------------------------------------

template <class T>
T setting(const Json& config, const char* key, T fallback, const std::string& source) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return fallback;
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    refuse(source, fmt::format("{} is {}, not what PEFT writes there", key, quote(found->dump(), 80)));
  }
}

/// The number that a pattern gives a module; PEFT's patterns are ends of names, or regular expressions.
double by_pattern(const Json& config, const char* key, const std::string& module, double usual,
                  const std::string& source) {
  const auto patterns = config.find(key);
  if (patterns == config.end() || patterns->is_null()) return usual;
  if (!patterns->is_object()) refuse(source, fmt::format("{} is no object", key));
  for (const auto& [pattern, value] : patterns->items()) {
    if (pattern.find_first_of("^$*+?()[]{}|\\") != std::string::npos)
      refuse(source, fmt::format("{} has the regular expression {}; Weft reads names of modules there", key,
                                 quote(pattern, 80)));
    if (!value.is_number()) refuse(source, fmt::format("{} of {} is no number", key, quote(pattern, 80)));
    if (module == pattern || module.ends_with("." + pattern)) return value.get<double>();
  }
  return usual;
}

ModuleChanges read_folder(const fs::path& folder, double scale) {
  const std::string source = (folder / kConfig).string();
  const Json config = read_json_file(folder / kConfig);
  if (!config.is_object()) refuse(source, "no object");
  if (const auto type = setting<std::string>(config, "peft_type", "LORA", source); type != "LORA")
    refuse(source,
           fmt::format("an adapter of the kind {}; Weft has adapters by low-rank matrices (LORA)", quote(type, 40)));
  if (!fs::exists(folder / kWeights))
    refuse(folder.string(), fmt::format("there is no {}; save the adapter with safetensors", kWeights));
  const io::TensorSource tensors = io::TensorSource::open(folder / kWeights);
  std::map<std::string, Found> pairs;
  for (const io::SourceTensor& tensor : tensors.tensors()) {
    std::string_view name = tensor.name;
    if (name.ends_with(".base_layer.weight")) continue;  // a copy of the model's own matrix, which PEFT adds for heads
    if (name.starts_with(kBefore)) name.remove_prefix(kBefore.size());
    const bool is_magnitude = drop_ending(name, ".lora_magnitude_vector");
    if (is_magnitude) {
      pairs[std::string(name)].magnitude = &tensor;
      continue;
    }
    if (!drop_ending(name, ".weight")) name = {};
    drop_ending(name, ".default");
    const bool is_a = drop_ending(name, ".lora_A");
    if (name.empty() || (!is_a && !drop_ending(name, ".lora_B")))
      refuse((folder / kWeights).string(),
             fmt::format("{} is no low-rank matrix of a product; adapters of embeddings, of biases and of whole layers "
                         "(modules_to_save) are not read: merge it into its model with PEFT",
                         quote(tensor.name, 120)));
    Found& pair = pairs[std::string(name)];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  if (pairs.empty()) refuse((folder / kWeights).string(), "there is no low-rank matrix in it");
  if (setting(config, "use_dora", false, source))
    for (const auto& [module, pair] : pairs)
      if (!pair.magnitude)
        refuse((folder / kWeights).string(),
               fmt::format("{} has no magnitudes, which {} promises (use_dora); is the file whole?", quote(module, 120),
                           kConfig));
  const double usual = setting(config, "lora_alpha", 8.0, source);
  const bool by_root = setting(config, "use_rslora", false, source);
  return read_pairs(tensors, pairs, scale, [&](const std::string& module, Extent rank) {
    const double alpha = by_pattern(config, "alpha_pattern", module, usual, source), r = static_cast<double>(rank);
    return alpha / (by_root ? std::sqrt(r) : r);
  });
}

// ---- GGUF files ------------------------------------------------------------------------------------------------------

ModuleChanges read_gguf(const io::TensorSource& source, double scale) {
  const io::GgufMetadata& metadata = source.gguf()->metadata();
  if (const auto type = metadata.get_or<std::string>("adapter.type", "lora"); type != "lora")
    refuse(source.path().string(), fmt::format("an adapter of the kind {}; Weft has lora", quote(type, 40)));
  const double alpha = metadata.get_or<double>("adapter.lora.alpha", 0.0);
  std::map<std::string, Found> pairs;
  for (const io::SourceTensor& tensor : source.tensors()) {
    std::string_view name = tensor.name;
    const bool is_a = drop_ending(name, ".lora_a");
    if ((!is_a && !drop_ending(name, ".lora_b")) || !drop_ending(name, ".weight"))
      refuse(source.path().string(), fmt::format("{} is no low-rank matrix of a product", quote(tensor.name, 120)));
    Found& pair = pairs[std::string(name)];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  // llama.cpp takes an alpha of zero as a factor of one.
  return read_pairs(source, pairs, scale, [&](const std::string&, Extent rank) {
    return alpha == 0 ? 1.0 : alpha / static_cast<double>(rank);
  });
}

bool is_adapter_gguf(const io::TensorSource& source) {
  return source.gguf() && source.gguf()->metadata().get_or<std::string>("general.type", "") == "adapter";
}

// ---- Writing ---------------------------------------------------------------------------------------------------------

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

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

void write_folder(const fs::path& folder, const ModuleChanges& modules, const ModelGraph& form,
                  const AdapterNotes& notes) {
  const auto has_magnitude = [](const auto& module) { return !module.second.magnitude.empty(); };
  const bool with_magnitudes = std::any_of(modules.begin(), modules.end(), has_magnitude);
  if (with_magnitudes && !std::all_of(modules.begin(), modules.end(), has_magnitude))
    throw FileError(fmt::format(
        "{}: some matrices have magnitudes and others have none, which a folder of PEFT cannot say", folder.string()));
  const Extent rank = usual_rank(modules);
  const double alpha = alpha_of(
      std::find_if(modules.begin(), modules.end(), [&](const auto& m) { return m.second.rank == rank; })->second);
  Json ranks = Json::object(), alphas = Json::object();
  std::set<std::string> parts;
  std::vector<io::TensorView> tensors;
  bool is_transposed = false;
  const auto targets = module_targets(form);
  for (const auto& [module, change] : modules) {
    parts.insert(last_part(module));
    is_transposed = is_transposed || targets.find(module)->second.transposed;
    if (change.rank != rank) ranks[module] = change.rank;
    if (alpha_of(change) != alpha) alphas[module] = alpha_of(change);
    // Files of GPT-2 leave out the name of the part that holds the layers.
    const std::string name = fmt::format("{}{}{}", kBefore, module.starts_with("h.") ? "transformer." : "", module);
    tensors.push_back({name + ".lora_A.weight", "F32", {change.rank, change.in}, bytes_of(change.a)});
    tensors.push_back({name + ".lora_B.weight", "F32", {change.out, change.rank}, bytes_of(change.b)});
    if (with_magnitudes)
      tensors.push_back({name + ".lora_magnitude_vector", "F32", {change.out}, bytes_of(change.magnitude)});
  }
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", notes.base},
                       {"r", rank},
                       {"lora_alpha", alpha},
                       {"lora_dropout", notes.dropout},
                       {"target_modules", parts},
                       {"bias", "none"},
                       {"fan_in_fan_out", is_transposed},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"modules_to_save", nullptr},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas},
                       {"use_rslora", false},
                       {"use_dora", with_magnitudes}};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw FileError(fmt::format("{}: the folder cannot be made: {}; choose another place, or change the permissions",
                                folder.string(), error.message()));
  io::write_safetensors(folder / kWeights, tensors, {{"format", "pt"}});
  write_file_atomically(folder / kConfig, config.dump(2) + "\n");
}

void write_gguf(const fs::path& file, const ModuleChanges& modules, const ModelGraph& form, const AdapterNotes& notes) {
  for (const auto& [module, change] : modules)
    if (!change.magnitude.empty())
      throw FileError(fmt::format(
          "{}: GGUF files of adapters have no place for magnitudes (dora); write a folder, or merge the adapter "
          "into its model (weft convert --adapter)",
          file.string()));
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
    infos.push_back({module + ".weight.lora_a", {change.rank, change.in}, BlockType::f32});
    infos.push_back({module + ".weight.lora_b", {change.out, change.rank}, BlockType::f32});
    values.push_back(change.a);
    values.push_back(std::move(b));
  }
  io::GgufWriter writer(file, metadata, std::move(infos));
  for (const std::vector<float>& each : values) writer.write(bytes_of(each));
  writer.commit();
}

/// What `base` holds, with its gain, and with B A added as a file holds it.
std::vector<float> with_change(const io::TensorSource& source, const io::SourceTensor& base, const ModuleChange& change,
                               bool transposed) {
  const io::LoadedTensor loaded = io::TensorSource::loaded(base);
  std::vector<float> values(static_cast<std::size_t>(base.shape.numel()));
  source.read_f32(loaded.tensor, values);
  const Tensor a = tensor_from_bytes(change.a.data(), {change.rank, change.in}, DType::f32, kCpu),
               b = tensor_from_bytes(change.b.data(), {change.out, change.rank}, DType::f32, kCpu),
               product = matmul(b, a) * change.scale;
  Tensor whole = tensor_from_bytes(values.data(), base.shape, DType::f32, kCpu);
  if (!change.gain.empty()) {
    const Tensor gain = tensor_from_bytes(change.gain.data(), {change.out}, DType::f32, kCpu);
    whole = whole * reshape(gain, transposed ? Shape{1, change.out} : Shape{change.out, 1});
  }
  return (whole + reshape(transposed ? transpose(product) : product, base.shape)).to_vector<float>();
}

}  // namespace

bool is_adapter(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fs::exists(path / kConfig, ignored);
  if (!fs::is_regular_file(path, ignored) || io::source_kind(path) != io::SourceKind::gguf) return false;
  return is_adapter_gguf(io::TensorSource::open(path));
}

std::vector<LowRank> read_adapter(const fs::path& path, double scale, const ModelGraph& graph) {
  if (!std::isfinite(scale)) throw UsageError(fmt::format("{}: the adapter's scale is {}", path.string(), scale));
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  if (!fs::exists(path, ignored)) refuse(path.string(), "there is no such adapter");
  if (is_folder && !fs::exists(path / kConfig, ignored))
    refuse(path.string(), fmt::format("the folder has no {}, so it is no adapter of PEFT", kConfig));
  ModuleChanges modules;
  if (is_folder) {
    modules = read_folder(path, scale);
  } else {
    const io::TensorSource source = io::TensorSource::open(path);
    if (!is_adapter_gguf(source))
      refuse(path.string(), fmt::format("it is no adapter: give a folder with {}, or a GGUF file whose general.type is "
                                        "adapter",
                                        kConfig));
    modules = read_gguf(source, scale);
  }
  const bool is_same_kind = is_folder != graph.config.from_gguf;
  return changes_of(modules, graph, is_same_kind ? graph : graph_of_other_kind(graph), path.string());
}

void write_adapter(const fs::path& path, const std::vector<LowRank>& changes, const ModelGraph& graph,
                   const AdapterNotes& notes) {
  if (changes.empty()) throw InternalError("llm: an adapter without changes");
  const bool to_gguf = path.extension() == ".gguf";
  const ModelGraph form = to_gguf == graph.config.from_gguf ? graph : graph_of_other_kind(graph);
  const ModuleChanges modules = modules_of(changes, graph, form);
  if (to_gguf)
    write_gguf(path, modules, form, notes);
  else
    write_folder(path, modules, form, notes);
}

io::TensorSource merged(const io::TensorSource& source, const std::vector<LowRank>& changes, const ModelGraph& graph) {
  const auto modules = std::make_shared<const ModuleChanges>(modules_of(changes, graph, graph));
  const auto targets = module_targets(graph);
  const TensorNames names(source);
  const auto base = std::make_shared<const io::TensorSource>(source);
  std::vector<io::SourceTensor> tensors = source.tensors();
  for (const auto& [module, change] : *modules) {
    const io::SourceTensor* found = names.find(module + ".weight");
    if (!found)
      refuse(source.path().string(),
             fmt::format("the adapter changes {}, which is the table of tokens too; use the adapter beside the model",
                         quote(module, 120)));
    const BlockType type =
        found->type == BlockType::f32 || found->type == BlockType::bf16 ? *found->type : BlockType::f16;
    io::SourceTensor& tensor = tensors[static_cast<std::size_t>(found - source.tensors().data())];
    tensor.type = type;
    tensor.type_name = std::string(file_name_of(type));
    tensor.data = {};
    const bool transposed = targets.find(module)->second.transposed;
    tensor.make = [base, modules, name = found->name, module, transposed, type](std::span<std::byte> to) {
      const std::vector<float> values = with_change(*base, base->at(name), modules->at(module), transposed);
      std::size_t at = 0;
      put_as(type, values, *base, name, [&](std::span<const std::byte> piece) {
        std::copy(piece.begin(), piece.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
        at += piece.size();
      });
    };
  }
  return source.with_tensors(std::move(tensors));
}

}  // namespace weft::llm
