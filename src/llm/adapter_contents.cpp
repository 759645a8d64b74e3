#include "llm/adapter_contents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/gguf.hpp"
#include "llm/adapter_experts.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

constexpr Extent kRankMax = 4096, kExpertsMax = 4096;

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

/// The parameter of a module of experts that a change of a folder is of; nothing for other modules.
std::string_view parameter_of(std::string_view module) {
  for (const std::string_view name : {kGateUp, kDown})
    if (module.ends_with(fmt::format(".experts.{}", name))) return name;
  return {};
}

ModuleChanges read_pairs(const io::TensorSource& source, const std::map<std::string, Found>& pairs, double scale,
                         const std::function<double(const std::string& module, ModuleChange& change)>& factor) {
  ModuleChanges modules;
  for (const auto& [module, found] : pairs) {
    const std::string where = source.path().string();
    if (!found.a || !found.b)
      refuse(where, fmt::format("{} has one of its two matrices; is the file whole?", quote(module, 120)));
    const Shape &a = found.a->shape, &b = found.b->shape;
    const bool is_stacked = a.rank() == 3 && b.rank() == 3 && a[0] == b[0] && a[1] == b[2];
    const Extent most = parameter_of(module).empty() ? kRankMax : kRankMax * kExpertsMax;
    if (!is_stacked && (a.rank() != 2 || b.rank() != 2 || a[0] != b[1] || a[0] < 1 || a[0] > most))
      refuse(where, fmt::format("{}: matrices {} and {} are not [rank, in] and [out, rank] with a rank of 1 to {}",
                                quote(module, 120), a.to_string(), b.to_string(), kRankMax));
    const auto values = [&](const io::SourceTensor& tensor) {
      const io::LoadedTensor loaded = io::TensorSource::loaded(tensor);
      source.require_finite(loaded.tensor);
      std::vector<float> read(static_cast<std::size_t>(tensor.shape.numel()));
      source.read_f32(loaded.tensor, read);
      return read;
    };
    ModuleChange change = is_stacked ? ModuleChange{a[1], a[2], b[1], values(*found.a), values(*found.b)}
                                     : ModuleChange{a[0], a[1], b[0], values(*found.a), values(*found.b)};
    if (is_stacked) change.experts = a[0];
    change.scale = factor(module, change);
    if (found.magnitude) {
      if (found.magnitude->shape != Shape{change.out})
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
  for (const auto& [given, value] : patterns->items()) {
    std::string_view pattern = given;
    // What PEFT makes of names of experts that were modules once.
    if (constexpr std::string_view kAny = ".*\\."; pattern.starts_with(kAny)) pattern.remove_prefix(kAny.size());
    if (pattern.find_first_of("^$*+?()[]{}|\\") != std::string::npos)
      refuse(source,
             fmt::format("{} has the regular expression {}; Weft reads names of modules there", key, quote(given, 80)));
    if (!value.is_number()) refuse(source, fmt::format("{} of {} is no number", key, quote(given, 80)));
    if (module == pattern || module.ends_with(fmt::format(".{}", pattern))) return value.get<double>();
  }
  return usual;
}

/// "q_proj.base_layer.bias" is the bias of q_proj, which has an adapter too.
std::string key_of_saved(std::string_view name) {
  constexpr std::string_view kLayer = ".base_layer";
  std::string key(name);
  if (const std::size_t at = key.find(kLayer); at != std::string::npos) key.erase(at, kLayer.size());
  return key;
}

/// Parameters of a module of experts, which the names of matrices do not tell: PEFT wraps the module once for each of them, first for gates
/// and ups.
void name_parameters(std::map<std::string, Found>& pairs, const Json& config, const std::string& source) {
  constexpr std::string_view kInner = ".experts.base_layer", kOuter = ".experts";
  bool has[2] = {};
  for (const auto& target : setting<std::vector<std::string>>(config, "target_parameters", {}, source))
    for (const bool is_down : {false, true}) has[is_down ? 1 : 0] |= target.ends_with(is_down ? kDown : kGateUp);
  std::map<std::string, Found> named;
  for (auto& [module, found] : pairs) {
    std::string_view name = module;
    const bool is_inner = drop_ending(name, kInner);
    if (!is_inner && !drop_ending(name, kOuter)) {
      named.emplace(module, found);
      continue;
    }
    const bool is_down = !is_inner && (pairs.contains(fmt::format("{}{}", name, kInner)) || !has[0]);
    if (!has[is_down ? 1 : 0])
      refuse(source, fmt::format("target_parameters does not tell which parameter {} is of", quote(module, 120)));
    named.emplace(fmt::format("{}.experts.{}", name, is_down ? kDown : kGateUp), found);
  }
  pairs = std::move(named);
}

AdapterContents read_folder(const fs::path& folder, double scale) {
  const std::string source = (folder / kAdapterConfig).string();
  const Json config = read_json_file(folder / kAdapterConfig);
  if (!config.is_object()) refuse(source, "no object");
  if (const auto type = setting<std::string>(config, "peft_type", "LORA", source); type != "LORA")
    refuse(source,
           fmt::format("an adapter of the kind {}; Weft has adapters by low-rank matrices (LORA)", quote(type, 40)));
  if (!fs::exists(folder / kAdapterWeights))
    refuse(folder.string(), fmt::format("there is no {}; save the adapter with safetensors", kAdapterWeights));
  AdapterContents contents;
  contents.is_folder = true;
  contents.source = std::make_shared<const io::TensorSource>(io::TensorSource::open(folder / kAdapterWeights));
  const io::TensorSource& tensors = *contents.source;
  std::map<std::string, Found> pairs, tables;
  for (const io::SourceTensor& tensor : tensors.tensors()) {
    std::string_view name = tensor.name;
    if (name.ends_with(".base_layer.weight")) continue;  // a copy of the model's own matrix, which PEFT adds for heads
    if (name.starts_with(kAdapterPrefix)) name.remove_prefix(kAdapterPrefix.size());
    const bool is_magnitude = drop_ending(name, ".lora_magnitude_vector");
    if (is_magnitude) {
      pairs[std::string(name)].magnitude = &tensor;
      continue;
    }
    if (name.find("lora_") == std::string_view::npos) {
      contents.saved.push_back({key_of_saved(name), tensor});
      continue;
    }
    const bool is_table_a = drop_ending(name, ".lora_embedding_A");
    if (is_table_a || drop_ending(name, ".lora_embedding_B")) {
      Found& table = tables[std::string(name)];
      (is_table_a ? table.a : table.b) = &tensor;
      continue;
    }
    if (!drop_ending(name, ".weight")) name = {};
    drop_ending(name, ".default");
    const bool is_a = drop_ending(name, ".lora_A");
    if (name.empty() || (!is_a && !drop_ending(name, ".lora_B")))
      refuse(
          (folder / kAdapterWeights).string(),
          fmt::format("{} is no low-rank matrix of a product or of a table of tokens; merge the adapter into its model "
                      "with PEFT",
                      quote(tensor.name, 120)));
    Found& pair = pairs[std::string(name)];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  if (pairs.empty() && tables.empty() && contents.saved.empty())
    refuse((folder / kAdapterWeights).string(), "there is no tensor in it");
  if (setting(config, "use_dora", false, source))
    for (const auto& [module, pair] : pairs)
      if (!pair.magnitude)
        refuse((folder / kAdapterWeights).string(),
               fmt::format("{} has no magnitudes, which {} promises (use_dora); is the file whole?", quote(module, 120),
                           kAdapterConfig));
  const double usual = setting(config, "lora_alpha", 8.0, source);
  const bool by_root = setting(config, "use_rslora", false, source);
  name_parameters(pairs, config, source);
  const auto factor = [&](const std::string& module, ModuleChange& change) {
    if (!parameter_of(module).empty()) {
      const auto each =
          static_cast<Extent>(by_pattern(config, "rank_pattern", module, setting(config, "r", 8.0, source), source));
      if (each < 1 || change.rank % each != 0)
        refuse(source,
               fmt::format("{} has {} rows, and the rank of each expert is {}", quote(module, 120), change.rank, each));
      stack_experts(change, change.rank / each);
    }
    const Extent rank = change.rank;
    const double alpha = by_pattern(config, "alpha_pattern", module, usual, source), r = static_cast<double>(rank);
    return alpha / (by_root ? std::sqrt(r) : r);
  };
  contents.modules = read_pairs(tensors, pairs, scale, factor);
  contents.tables = read_pairs(tensors, tables, scale, factor);
  return contents;
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
  return read_pairs(source, pairs, scale, [&](const std::string&, const ModuleChange& change) {
    return alpha == 0 ? 1.0 : alpha / static_cast<double>(change.rank);
  });
}

bool is_adapter_gguf(const io::TensorSource& source) {
  return source.gguf() && source.gguf()->metadata().get_or<std::string>("general.type", "") == "adapter";
}

}  // namespace

bool is_adapter(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fs::exists(path / kAdapterConfig, ignored);
  if (!fs::is_regular_file(path, ignored) || io::source_kind(path) != io::SourceKind::gguf) return false;
  return is_adapter_gguf(io::TensorSource::open(path));
}

AdapterContents read_contents(const fs::path& path, double scale) {
  if (!std::isfinite(scale)) throw UsageError(fmt::format("{}: the adapter's scale is {}", path.string(), scale));
  std::error_code ignored;
  if (!fs::exists(path, ignored)) refuse(path.string(), "there is no such adapter");
  if (fs::is_directory(path, ignored)) {
    if (!fs::exists(path / kAdapterConfig, ignored))
      refuse(path.string(), fmt::format("the folder has no {}, so it is no adapter of PEFT", kAdapterConfig));
    return read_folder(path, scale);
  }
  const io::TensorSource source = io::TensorSource::open(path);
  if (!is_adapter_gguf(source))
    refuse(path.string(), fmt::format("it is no adapter: give a folder with {}, or a GGUF file whose general.type is "
                                      "adapter",
                                      kAdapterConfig));
  AdapterContents contents;
  contents.modules = read_gguf(source, scale);
  return contents;
}

}  // namespace weft::llm
